"""The ledgers of many ranks that have made many calls: each is read a few times, not once for every other rank."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rankdrill.diagnosis import FindingKind, doomed
from rankdrill.diagnosis.progress import position
from rankdrill.diagnosis.root_cause import cause_of_hang
from rankdrill.ledger import LedgerReader, LedgerView, LedgerWriter, State
from rankdrill.step import Kind, Site, Step

RANKS, ODD, CALLS = 24, 17, 20
MOST_READS = 48  # of one ledger, for one verdict: as many for 1 024 ranks as for 4
MOST_WALKS = 200  # through a syntax tree: it takes milliseconds
SITE = Site("train.py", 3, "train")


def ledger(path: Path, rank: int) -> LedgerView:
    """One that waits in the last of its calls, which the odd one has left out; the ring has lost its members."""
    with LedgerWriter(path, rank=rank, world_size=RANKS, capacity=64, sites=4) as writer:
        for number in range(CALLS - (rank == ODD)):
            index = writer.begin(Step(Kind.COLLECTIVE, "all_reduce", "1", "float32[4] sum", sequence=number, site=SITE))
            writer.wait(index, 0) if number == CALLS - 1 else writer.mark(index, State.ENDED)
    return LedgerReader(path).view()


def registers(store: Any, rank: int) -> list[bytes]:
    if rank != ODD:
        store.set(f"host/{rank}", "localhost")
    return [store.get(f"host/{other}") for other in range(RANKS)]  # got


def asking(path: Path, rank: int) -> LedgerView:
    """One that has set its own key, as all but one have, and waits for that one's."""
    lines, first = inspect.getsourcelines(registers)
    (line,) = [number for number, text in enumerate(lines, first) if text.endswith("# got\n")]
    site = Site(inspect.getfile(registers), line, registers.__name__)
    with LedgerWriter(path, rank=rank, world_size=RANKS, capacity=64, sites=4) as writer:
        if rank != ODD:
            own = Step(Kind.STORE, "set", f"host/{rank}", digest=rank, site=replace(site, line=first + 2))
            writer.mark(writer.begin(own), State.ENDED)
        writer.begin(Step(Kind.STORE, "get", f"host/{ODD}", digest=ODD, site=site))
    return LedgerReader(path).view()


def test_the_source_is_read_once_and_not_for_each_two_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    views = [asking(tmp_path / str(rank), rank) for rank in range(RANKS)]
    waits = doomed([position(view, ended=False) for view in views])
    walks = 0
    walk = ast.walk

    def counted(node: ast.AST) -> Iterator[ast.AST]:
        nonlocal walks
        walks += 1
        return walk(node)

    monkeypatch.setattr(ast, "walk", counted)
    found = cause_of_hang(waits, [], views)
    assert found is not None
    assert (found.kind, found.culprits) == (FindingKind.MISSING_KEY, (ODD,))
    assert walks <= MOST_WALKS


def test_who_left_a_call_out_is_found_in_a_few_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    views = [ledger(tmp_path / str(rank), rank) for rank in range(RANKS)]
    waits = doomed([position(view, ended=rank == ODD) for rank, view in enumerate(views)])
    reads: Counter[int] = Counter()
    where = LedgerView.where

    def counted(view: LedgerView, *args: object) -> object:
        reads[id(view)] += 1
        return where(view, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(LedgerView, "where", counted)
    found = cause_of_hang(waits, [ODD], views)
    assert found is not None
    assert (found.kind, found.culprits) == (FindingKind.MISSING, (ODD,))
    assert max(reads.values()) <= MOST_READS
