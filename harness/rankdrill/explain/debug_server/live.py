"""A job that runs, and has torch's debug server: asked once, and explained."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from rankdrill.diagnosis import name_ranks
from rankdrill.errors import DumpError, UsageError
from rankdrill.explain.debug_server.directory import of_stacks
from rankdrill.explain.debug_server.judged import Moment
from rankdrill.explain.debug_server.lines import with_lines
from rankdrill.explain.debug_server.pages import Answer, NoPageError, answers, is_address
from rankdrill.explain.debug_server.served import Served
from rankdrill.explain.debug_server.stacks import Stack, stack_of
from rankdrill.explain.explanation import Explanation
from rankdrill.explain.flight.columns import MOST_RANKS, Tables, columns_of
from rankdrill.explain.flight.explained import Read, read_of
from rankdrill.explain.flight.job import Dump, make_job
from rankdrill.explain.flight.load import load

__all__ = ["explain_server", "is_address", "read_server"]

RECORDERS = ("fr_trace_nccl_json", "torchcomms_fr_trace_json", "fr_trace_json")
"""The pages of NCCL's recorder, of TorchComms's, and of the one that gloo has."""
BETWEEN_LOOKS_S = 1.0  # at the stacks


@dataclass
class _Recorder:
    """What one page says."""

    dumps: list[Dump] = field(default_factory=list)
    tables: Tables = field(default_factory=Tables)
    errors: dict[int, str] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        return sum(len(dump.columns) for dump in self.dumps if dump.columns is not None)


def explain_server(address: str) -> Explanation:
    """What `read_server` explains."""
    return read_server(address).explanation


def read_server(address: str) -> Served:
    """What the recorders of the job at `address` show now, with the lines that its stacks tell.

    Raises `UsageError` where no such server answers.
    """
    found = [_asked(address, page) for page in RECORDERS]
    stacks = _stacks(address)
    if not stacks and not any(recorder.dumps or recorder.errors for recorder in found):
        raise UsageError(f"{address}: there is no page of torch's debug server with ranks on it")
    reads = [_read(recorder) for recorder in found if recorder.entries]
    reads.sort(key=lambda each: not each.explanation.causes)
    if reads:
        read = reads[0]
        explanation = with_lines(read.explanation, stacks)
        return Served(replace(explanation, source=address), stacks, read)
    time.sleep(BETWEEN_LOOKS_S)
    again = _stacks(address)
    explanation = of_stacks([Moment(0, stacks), Moment(int(BETWEEN_LOOKS_S * 1e9), again)])
    told = "no recorder has an entry: judged by Python stacks alone"
    return Served(replace(explanation, source=address, gaps=(told, *explanation.gaps)), again)


def _asked(address: str, page: str) -> _Recorder:
    recorder = _Recorder()
    for answer in _of(address, page):
        if answer.error or answer.rank >= MOST_RANKS:
            recorder.errors[answer.rank] = answer.error
            continue
        name = f"the answer of rank {answer.rank}"
        try:
            columns = columns_of(load(answer.body), recorder.tables)
        except DumpError as error:
            recorder.dumps.append(Dump(answer.rank, name, None, str(error)))
        else:
            recorder.dumps.append(Dump(answer.rank, name, columns, written_ns=time.time_ns()))
    return recorder


def _of(address: str, page: str) -> Iterator[Answer]:
    """The answers on `page`; none where there is no such page."""
    with suppress(NoPageError):
        yield from answers(address, page)


def _read(recorder: _Recorder) -> Read:
    read = read_of(make_job(recorder.dumps, recorder.tables))
    silent: dict[str, list[int]] = {}
    for rank, error in sorted(recorder.errors.items()):
        silent.setdefault(error, []).append(rank)
    told = tuple(f"{name_ranks(ranks)} did not answer: {error}" for error, ranks in silent.items())
    return replace(read, explanation=replace(read.explanation, gaps=(*told, *read.explanation.gaps)))


def _stacks(address: str) -> dict[int, Stack]:
    found = {}
    for answer in _of(address, "stacks"):
        said = answer.body.decode("utf-8", "replace")
        found[answer.rank] = Stack(error=answer.error) if answer.error else stack_of(said)
    return found
