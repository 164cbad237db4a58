"""Slips put into correct programs: they are where they say, and who makes one is named."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.slipping.places import who_comes_to
from benchmarks.slipping.slips import KINDS, Slip, slips_of
from benchmarks.slips import judged

from tests.catalogue.drilling import Drill, drills
from tests.catalogue.programs import catalogue

PROGRAMS = {program.name: program for program in catalogue("correct")}
HALVES = PROGRAMS["messages.messages_between_collectives"]


@pytest.fixture(scope="module")
def drill() -> Iterator[Drill]:
    with drills() as drill:
        yield drill


def slip_in(name: str, kind: str, rank: int, line: str) -> Slip:
    found = [each for each in slips_of(PROGRAMS[name]) if (each.kind, each.rank) == (kind, rank)]
    return next(each for each in found if each.line.startswith(line))


def test_each_is_another_program_that_can_be_read() -> None:
    was = ast.dump(ast.parse(Path(HALVES.file).read_text()))
    slips = list(slips_of(HALVES))
    assert {slip.rank for slip in slips} == set(range(HALVES.ranks))
    assert {slip.kind for slip in slips} <= set(KINDS)
    sources = [slip.source() for slip in slips]
    assert len(set(sources)) == len(sources)
    assert all(ast.dump(ast.parse(source)) != was for source in sources)


def test_one_round_alone_is_told() -> None:
    rounds = [slip for slip in slips_of(HALVES) if slip.round_]
    assert rounds
    assert all(" in one round: " in slip.name and f"{slip.round_} == 1" in slip.source() for slip in rounds)


def test_only_those_that_a_rank_comes_to_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drill: Drill) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    program = PROGRAMS["messages.those_with_an_odd_number_get_no_work"]
    come = who_comes_to(program, "come_to_an_odd_number", tmp_path, drill)
    slips = [slip for slip in slips_of(program) if slip.kind == "left out"]
    reached = {(slip.rank, slip.line[:9]) for slip in slips if (slip.number, slip.rank, False) in come}
    assert {line for rank, line in reached if rank == 0} == {"dist.send", "dist.barr"}
    assert {rank for rank, line in reached if line == "dist.recv"} == {2, 4}


@pytest.mark.parametrize(
    ("name", "kind", "rank", "line"),
    [
        ("races.a_mean_of_all", "left out", 3, "dist.send"),
        ("races.a_mean_of_all", "left out", 1, "dist.barrier"),
        ("messages.messages_between_collectives", "another peer", 2, "dist.send"),
        ("stores.told_of_each_model_better_or_not", "left out", 1, "dist.all_reduce"),
        ("races.a_mean_of_all", "returned before", 1, "dist.barrier"),
        ("messages.messages_between_collectives", "another size", 2, "dist.all_reduce"),
        ("messages.messages_between_collectives", "another dtype", 1, "dist.all_reduce"),
    ],
)
def test_who_makes_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drill: Drill, name: str, kind: str, rank: int, line: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    slip = slip_in(name, kind, rank, line)
    own = re.sub(r"\W", "_", slip.name)  # modules of one name are one to a process
    ((_, worth, said),) = judged([slip], tmp_path, drill, prefix=f"slip_{own}_")
    assert worth == "right", said.text
