"""Jobs of which a process is stopped by a signal, as batch systems do: said while it lasts."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from rankdrill.diagnosis import Confidence, FindingKind
from rankdrill.explain.explanation import Explanation
from rankdrill.explain.recording import explain_recording
from rankdrill.explain.recording.sight import Sights
from tests.explain.test_recording import FOREVER, WORLD, cause_in, has_a_cause
from tests.recording.jobs import Job, await_that, explained, job
from tests.recording.test_record import steps_in


def go_on(rank: int) -> None:
    while True:
        dist.all_reduce(torch.ones(8))
        time.sleep(0.01)


def one_computes(rank: int) -> None:
    dist.all_reduce(torch.ones(8))
    if rank == 2:
        time.sleep(FOREVER)
    dist.all_reduce(torch.ones(8))


def all_wait_for_the_last(rank: int, word: str) -> None:
    dist.all_reduce(torch.ones(8))
    if rank == 0:
        await_that(Path(word).exists, "the others wait")
    dist.all_reduce(torch.ones(1 << 20))


@contextmanager
def stopped(running: Job, ranks: Sequence[int]) -> Iterator[None]:
    pids = [pid for rank in ranks if (pid := running.ranks[rank].pid) is not None]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def places(found: Explanation) -> str:
    return "\n".join(map(str, found.places))


def test_who_is_stopped_is_told_while_others_wait_for_it(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with job(go_on, WORLD, record) as running:
        await_that(lambda: steps_in(record) > 20, "all are on their way")
        with stopped(running, [1]):
            found = explained(record, has_a_cause)
        cause = cause_in(found)
        assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.STUCK_RANK, (1,))
        assert cause.confidence is Confidence.LIKELY
        assert cause.finding.sides[0].did == f"is stopped by a signal (process {running.ranks[1].pid})"
        assert f"kill -CONT {running.ranks[1].pid}" in str(cause.why)
        assert "(stopped by a signal)" in places(found)
        steps = steps_in(record)
        await_that(lambda: steps_in(record) > steps + 20, "all go on")


def test_who_is_stopped_in_a_call_that_all_have_come_to(tmp_path: Path) -> None:
    record, word = tmp_path / "record", tmp_path / "word"
    with job(all_wait_for_the_last, 3, record, str(word)) as running:
        explained(record, lambda found: "ranks 1, 2 waiting" in places(found))
        with stopped(running, [1]):
            word.touch()
            cause = cause_in(explained(record, has_a_cause))
            assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.STUCK_RANK, (1,))
        assert running.wait() == [0, 0, 0]


def test_who_waits_is_not_at_fault_for_being_stopped(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with job(one_computes, WORLD, record) as running:
        explained(record, lambda found: "ranks 0, 1, 3 waiting" in places(found))
        with stopped(running, [0, 1]):
            cause = cause_in(explained(record, has_a_cause))
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.STUCK_RANK, (2,))
    assert "stopped" not in cause.finding.sides[0].did


def wait_in_a_row(rank: int) -> None:
    dist.all_reduce(torch.ones(8))
    if rank == 2:
        time.sleep(FOREVER)
    dist.recv(torch.ones(8), src=rank + 1) if rank < 2 else dist.all_reduce(torch.ones(8))


def test_who_waits_for_another_is_not_what_holds_up_those_that_wait_for_it(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with job(wait_in_a_row, 3, record) as running:
        explained(record, lambda found: places(found).count("waiting") == 2)
        with stopped(running, [1]):
            cause = cause_in(explained(record, has_a_cause))
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.STUCK_RANK, (2,))


def test_where_all_are_stopped_nobody_is_at_fault(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with job(go_on, 2, record) as running:
        await_that(lambda: steps_in(record) > 20, "all are on their way")
        with stopped(running, [0, 1]):
            await_that(lambda: stopped_in(record) == [0, 1], "a signal has reached all threads of both")
            found = explain_recording(record)
    assert not found.causes
    assert "stopped by a signal" in places(found)


def test_where_one_was_stopped_while_it_waited_for_the_other_nobody_is_either(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with job(go_on, 2, record) as running:
        await_that(lambda: steps_in(record) > 20, "all are on their way")
        with stopped(running, [0]):
            time.sleep(0.5)  # for the other to wait for it
            with stopped(running, [1]):
                await_that(lambda: stopped_in(record) == [0, 1], "a signal has reached all threads of both")
                found = explain_recording(record)
    assert not found.causes


def test_who_looks_from_another_terminal_sees_it(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with job(go_on, 2, record) as running:
        await_that(lambda: steps_in(record) > 20, "all are on their way")
        with stopped(running, [1]):
            await_that(lambda: stopped_in(record) == [1], "a signal has reached all threads of the one")


def stopped_in(record: Path) -> list[int]:
    return [each.rank for each in Sights(record).look().ranks if each.doing.startswith("stopped by a signal, ")]
