"""Jobs that were recorded, and killed, are explained: who is at fault, where, and how sure that is."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import BackendConfig
from torch.nn.parallel import DistributedDataParallel

import rankdrill
from rankdrill.boundary import torch_seam
from rankdrill.diagnosis import Confidence, FindingKind
from rankdrill.errors import UsageError
from rankdrill.explain.explanation import Cause, Explanation
from rankdrill.explain.recording import explain_recording, is_recording
from rankdrill.explain.recording.evidence import evidence_of, mark_of
from rankdrill.explain.recording.reading import read_directory
from rankdrill.explain.recording.runs import told_apart
from rankdrill.explain.recording.standing import How, standings_of
from rankdrill.ledger import ON_DEVICE
from rankdrill.ledger.members import PARTLY_ON_DEVICE
from rankdrill.recording import recording
from tests.recording.jobs import await_that, explained, job
from tests.torch_can import end_group

FILE = Path(__file__)
WORLD = 4
LITTLE = 32  # records
FOREVER = 1000.0


def line_of(mark: str) -> int:
    """The line that ends in a comment of that word."""
    lines = FILE.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


def cause_in(found: Explanation) -> Cause:
    """The one that there is."""
    (cause,) = found.causes
    return cause


def line_in(cause: Cause) -> int:
    """The line of the first culprit."""
    site = cause.finding.sides[0].sites[0]
    assert site is not None
    assert Path(site.file) == FILE
    return site.line


def has_a_cause(found: Explanation) -> bool:
    return bool(found.causes)


def _who(cause: Cause) -> tuple[object, ...]:
    return cause.finding.kind, cause.finding.culprits, cause.finding.sides[0].sites


def is_settled(found: Explanation) -> bool:
    """Whether all are where they will stay: nobody runs."""
    told = all(cause.finding.culprits or cause.finding.kind is FindingKind.DEADLOCK for cause in found.causes)
    return has_a_cause(found) and told and not any("in no call" in place.doing for place in found.places)


def hung(body: Callable[..., Any], directory: Path, *args: Any, ranks: int = WORLD, **more: Any) -> Explanation:
    """What is explained of `body` after it has hung, was explained while it did, and then was killed."""
    with job(body, ranks, directory, *args, **more) as running:
        live = explained(running.directory, is_settled)
    found = explain_recording(directory)
    assert [_who(cause) for cause in found.causes] == [_who(cause) for cause in live.causes]
    return found


# ------------------------------------------------------------------------------------ kinds of causes


def leave_one_out(rank: int) -> None:
    for round_ in range(4):
        if (rank, round_) != (2, 1):
            dist.all_reduce(torch.ones(8))  # left out
        dist.all_reduce(torch.ones(8))
    dist.barrier()


def test_a_rank_that_leaves_a_call_out_is_named_with_its_line(tmp_path: Path) -> None:
    found = hung(leave_one_out, tmp_path / "record")
    cause = cause_in(found)
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.MISSING, (2,))
    assert line_in(cause) == line_of("left out")
    assert cause.confidence is Confidence.CERTAIN
    assert found.victims == (0, 1, 3)
    assert found.gaps == ()


def queue_on_a_device(rank: int, leaves: bool) -> None:
    """On a group that returns at once, as NCCL does, and moves nothing; who would wait for the device sleeps."""
    import torch.testing._internal.distributed.fake_pg  # which registers the backend

    torch_seam.goes_on_after_calls = lambda group: True
    group = dist.new_group(backend="fake")
    for step in range(6):
        dist.all_reduce(torch.ones(4), group=group)
        if (rank, step) != (2, 3):
            dist.all_reduce(torch.ones(4), group=group)  # not queued
    time.sleep(0 if rank == 2 and leaves else FOREVER)


def test_a_call_that_never_ends_on_the_device_is_no_call_that_has_ended(tmp_path: Path) -> None:
    found = hung(queue_on_a_device, tmp_path / "record", True)
    cause = cause_in(found)
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.MISSING, (2,))
    assert line_in(cause) == line_of("not queued")
    assert found.victims == (0, 1, 3)


def test_of_a_device_that_stands_still_the_first_call_is_told_that_somebody_lacks(tmp_path: Path) -> None:
    with job(queue_on_a_device, WORLD, tmp_path / "record", False) as running:
        found = explained(running.directory, has_a_cause)
    cause = cause_in(found)
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.STUCK_RANK, (2,))
    assert {place.ranks for place in found.places if "all_reduce #11" in place.doing} == {(0, 1, 3)}


@pytest.mark.parametrize(
    ("asked", "mark"),
    [("nccl", ON_DEVICE), ("gloo", 0), ("cpu:gloo,cuda:nccl", PARTLY_ON_DEVICE), ("cuda:nccl", ON_DEVICE)],
)
def test_a_group_is_marked_again_by_its_backends_as_torch_spells_them(asked: str, mark: int) -> None:
    """Where what the rank itself wrote down of it is overwritten."""
    assert mark_of(str(BackendConfig(dist.Backend(asked)))) == mark
    assert mark_of("") == 0


def end_when_told(rank: int, word: str) -> None:
    dist.barrier()
    await_that(Path(word).exists, "the word is given")


def test_who_ends_while_it_is_read_was_not_killed(tmp_path: Path) -> None:
    """What it says of its end comes after its log was read, and before its process is seen to be gone."""
    record, word = tmp_path / "record", tmp_path / "word"
    with job(end_when_told, 2, record, str(word)) as running:
        await_that(lambda: len(list(record.glob("*.ledger"))) == 2, "both record")
        explained(record, lambda found: not found.causes)
        await_that(lambda: len(told_apart(read_directory(record))) == 1, "both know that they are of one run")
        (run,) = told_apart(read_directory(record))
        word.touch()
        assert running.wait() == [0, 0]
        found = evidence_of(run)
    assert [each.alive for each in found.ranks.values()] == [False, False]
    assert [each.how for each in standings_of(found)] == [How.RETURNED] * 2


def leave_early(rank: int) -> None:
    for _ in range(4 - (rank == 3)):
        dist.all_reduce(torch.ones(8))  # left early
    if rank == 3:
        os.close(1)
        os._exit(0)


def test_a_rank_that_exits_at_once_is_lost(tmp_path: Path) -> None:
    with job(leave_early, WORLD, tmp_path / "record") as running:
        running.wait()
    cause = cause_in(explain_recording(tmp_path / "record"))
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.LOST_RANK, (3,))
    assert "called os._exit" in cause.finding.sides[0].did


def raise_on_one(rank: int) -> None:
    dist.all_reduce(torch.ones(8))
    if rank == 1:
        raise ValueError("no such file")  # raised
    dist.all_reduce(torch.ones(8))


def test_a_rank_that_raises_is_lost_and_those_that_fail_over_it_are_victims(tmp_path: Path) -> None:
    with job(raise_on_one, WORLD, tmp_path / "record") as running:
        assert running.wait() == [1, 1, 1, 1]
    found = explain_recording(tmp_path / "record")
    cause = cause_in(found)
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.LOST_RANK, (1,))
    assert line_in(cause) == line_of("raised")
    assert found.victims == (0, 2, 3)


def exit_where_it_failed(rank: int, of_ddp: bool) -> None:
    model = DistributedDataParallel(torch.nn.Linear(3, 3)) if of_ddp else None
    try:
        for _ in range(5 - (rank == 0)):
            if model is not None:
                model(torch.ones(2, 3)).sum().backward()  # a pass
            else:
                dist.all_reduce(torch.ones(8))  # a call
        dist.destroy_process_group()
    except RuntimeError:
        sys.exit(1)


@pytest.mark.parametrize(("of_ddp", "line"), [(True, "a pass"), (False, "a call")])
def test_a_rank_that_exits_where_its_call_has_failed_waited_there(of_ddp: bool, line: str, tmp_path: Path) -> None:
    with job(exit_where_it_failed, 3, tmp_path / "record", of_ddp) as running:
        assert running.wait() == [0, 1, 1]
    cause = cause_in(explain_recording(tmp_path / "record"))
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.MISSING, (0,))
    assert line_in(cause) == line_of(line)


def differ_in_size(rank: int) -> None:
    dist.all_reduce(torch.ones(8))
    dist.broadcast(torch.ones(8), src=int(rank == 1))  # another root
    dist.barrier()


def test_ranks_that_disagree_in_one_call(tmp_path: Path) -> None:
    with job(differ_in_size, WORLD, tmp_path / "record") as running:
        explained(running.directory, has_a_cause)
    cause = cause_in(explain_recording(tmp_path / "record"))
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.ROOT, (1,))
    assert line_in(cause) == line_of("another root")


def pass_on(rank: int) -> None:
    for round_ in range(3):
        right, left = (rank + 1) % WORLD, (rank - 1) % WORLD
        sent = dist.isend(torch.ones(2), dst=right) if (rank, round_) != (2, 2) else None  # not passed on
        dist.recv(torch.zeros(2), src=left)
        if sent is not None:
            sent.wait()
    dist.barrier()


def test_a_message_that_is_not_sent(tmp_path: Path) -> None:
    cause = cause_in(hung(pass_on, tmp_path / "record"))
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.UNMATCHED, (2,))
    assert line_in(cause) == line_of("not passed on")


def wait_for_each_other(rank: int) -> None:
    dist.recv(torch.zeros(2), src=1 - rank)


def test_ranks_that_wait_for_each_other(tmp_path: Path) -> None:
    cause = cause_in(hung(wait_for_each_other, tmp_path / "record", ranks=2))
    assert (cause.finding.kind, cause.finding.ranks) == (FindingKind.DEADLOCK, (0, 1))


def compute_for_ever(rank: int) -> None:
    for _ in range(3):
        dist.all_reduce(torch.ones(8))
    if rank == 2:
        time.sleep(FOREVER)  # stuck
    dist.all_reduce(torch.ones(8))


def test_a_rank_that_does_not_come_is_stuck_at_the_line_where_it_is(tmp_path: Path) -> None:
    with job(compute_for_ever, WORLD, tmp_path / "record") as running:
        # Of one that was killed it is known for a second less.
        explained(running.directory, lambda found: any("for 7." in str(cause.finding) for cause in found.causes))
    found = explain_recording(tmp_path / "record")
    cause = cause_in(found)
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.STUCK_RANK, (2,))
    assert line_in(cause) == line_of("stuck")
    assert cause.confidence is Confidence.POSSIBLE
    assert found.victims == (0, 1, 3)


def go_on_until_killed(rank: int) -> None:
    dist.all_reduce(torch.ones(8))
    if rank == 1:
        time.sleep(FOREVER)  # killed here
    elif rank == 0:
        dist.recv(torch.ones(8), src=1)
    else:
        time.sleep(FOREVER)


def test_a_rank_that_was_killed_while_others_live(tmp_path: Path) -> None:
    directory = tmp_path / "record"
    with job(go_on_until_killed, 3, directory) as running:
        await_that(lambda: _steps(directory) >= 1, "all have met")
        running.kill([1])
        found = explained(directory, has_a_cause)
    cause = cause_in(found)
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.LOST_RANK, (1,))
    assert "was killed" in cause.finding.sides[0].did


def meet_again(rank: int) -> None:
    dist.all_reduce(torch.ones(8))
    if rank == 1:
        time.sleep(FOREVER)
    dist.all_reduce(torch.ones(8))


def test_a_rank_that_was_killed_and_took_the_others_along(tmp_path: Path) -> None:
    directory = tmp_path / "record"
    with job(meet_again, WORLD, directory) as running:
        await_that(lambda: _steps(directory) >= 1, "all have met")
        running.kill([1])
        running.wait()
    found = explain_recording(directory)
    cause = cause_in(found)
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.LOST_RANK, (1,))
    assert "was killed" in cause.finding.sides[0].did
    assert found.victims == (0, 2, 3)


# ------------------------------------------------------------------------------------ where nothing is wrong


def do_well(rank: int) -> None:
    group = dist.new_group([0, 1])
    for _ in range(20):
        dist.all_reduce(torch.ones(8))
        if rank < 2:
            dist.all_reduce(torch.ones(8), group=group)
    dist.barrier()
    end_group()


def test_of_a_job_that_did_well_there_is_no_cause(tmp_path: Path) -> None:
    with job(do_well, WORLD, tmp_path / "record") as running:
        assert running.wait() == [0] * WORLD
    found = explain_recording(tmp_path / "record")
    assert (found.causes, found.fits, found.victims, found.gaps) == ((), (), (), ())
    assert [str(place) for place in found.places] == ["ranks 0, 1, 2, 3 came to the end"]


def go_on(rank: int) -> None:
    while True:
        dist.all_reduce(torch.ones(8))
        time.sleep(0.001 * rank)


@pytest.mark.parametrize("seconds", [0.013, *(pytest.param(other, marks=pytest.mark.nightly) for other in (0.0, 0.1))])
def test_of_a_job_that_was_killed_in_its_stride_there_is_no_cause(seconds: float, tmp_path: Path) -> None:
    with job(go_on, WORLD, tmp_path / "record") as running:
        await_that(lambda: _steps(tmp_path / "record") > 50, "it is in its stride")
        assert explain_recording(tmp_path / "record").causes == ()
        time.sleep(seconds)
        running.kill()
    assert explain_recording(tmp_path / "record").causes == ()


def _steps(directory: Path) -> int:
    if not directory.is_dir():
        return 0
    return min((one.reader.total if one.reader else 0 for one in read_directory(directory)), default=0)


# ------------------------------------------------------------------------------------ what is missing, or damaged


def of_rank(directory: Path, rank: int, suffix: str) -> Path:
    (name,) = [one.name for one in read_directory(directory) if one.rank == rank]
    return directory / f"{name}{suffix}"


@pytest.fixture(scope="module")
def left_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `leave_one_out` left."""
    directory = tmp_path_factory.mktemp("left out") / "record"
    hung(leave_one_out, directory, first=in_little)
    return directory


def in_little(rank: int, directory: str) -> None:
    vars(recording).update(_capacity_of=lambda size: LITTLE, SITES=16)
    rankdrill.record(directory)


def copied(directory: Path, to: Path) -> Path:
    shutil.copytree(directory, to)
    return to


@pytest.mark.parametrize("rank", range(WORLD))
def test_a_rank_without_a_record_is_evidence_and_nobody_else_is_blamed(
    rank: int, left_out: Path, tmp_path: Path
) -> None:
    directory = copied(left_out, tmp_path / "record")
    name = of_rank(left_out, rank, "").name
    for path in directory.glob(f"{name}.*"):
        path.unlink()
    found = explain_recording(directory)
    assert f"nothing was recorded by rank {rank}" in found.gaps
    assert_honest(found, blamed=2, unknown=rank)


def assert_honest(found: Explanation, *, blamed: int, unknown: int) -> None:
    """Whoever is named did it; or is the one of whom nothing is known, and is only what fits."""
    for cause in found.causes:
        if cause.finding.culprits == (unknown,) and unknown != blamed:
            assert cause.confidence is Confidence.POSSIBLE, cause
        else:
            assert cause.finding.culprits in ((), (blamed,)), cause


@pytest.mark.parametrize("rank", range(WORLD))
def test_a_log_that_is_missing_costs_little(rank: int, left_out: Path, tmp_path: Path) -> None:
    directory = copied(left_out, tmp_path / "record")
    (directory / of_rank(left_out, rank, ".log").name).unlink()
    found = explain_recording(directory)
    assert_honest(found, blamed=2, unknown=rank)
    assert any("has no log" in gap for gap in found.gaps)


def cut_lengths(size: int) -> list[int]:
    """Some of each part of a ledger; `test_every_length` takes all."""
    ends = [4096 + 288 * records - short for records in range(1, 20) for short in (1, 2, 3)]  # within a commit
    return [*range(0, 4200, 350), *range(4096, size, 61), *ends]


@pytest.mark.parametrize("rank", [0, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_ledger_that_was_cut_short_blames_nobody_else(rank: int, left_out: Path, tmp_path: Path) -> None:
    directory = copied(left_out, tmp_path / "record")
    path = directory / of_rank(left_out, rank, ".ledger").name
    whole = path.read_bytes()
    for length in cut_lengths(len(whole)):
        path.write_bytes(whole[:length])
        assert_honest(explain_recording(directory), blamed=2, unknown=rank)


@pytest.mark.nightly
@pytest.mark.parametrize("rank", range(WORLD))
def test_every_length(rank: int, left_out: Path, tmp_path: Path) -> None:
    directory = copied(left_out, tmp_path / "record")
    path = directory / of_rank(left_out, rank, ".ledger").name
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert_honest(explain_recording(directory), blamed=2, unknown=rank)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_log_that_was_cut_short(rank: int, left_out: Path, tmp_path: Path) -> None:
    directory = copied(left_out, tmp_path / "record")
    path = directory / of_rank(left_out, rank, ".log").name
    whole = path.read_bytes()
    for length in range(0, len(whole), 23):
        path.write_bytes(whole[:length])
        assert_honest(explain_recording(directory), blamed=2, unknown=rank)


def wrap_often(rank: int) -> None:
    pair = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    for round_ in range(LITTLE * 50):
        dist.all_reduce(torch.ones(1), group=pair)
        if (rank, round_) == (1, LITTLE * 50 - 5):
            continue
        dist.all_reduce(torch.ones(1))  # once left out


@pytest.mark.nightly
def test_rings_that_wrapped_a_hundred_times(tmp_path: Path) -> None:
    found = hung(wrap_often, tmp_path / "record", first=in_little)
    cause = cause_in(found)
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.MISSING, (1,))
    assert line_in(cause) == line_of("once left out")
    assert cause.confidence is not Confidence.CERTAIN
    assert any("were overwritten" in gap for gap in found.gaps)


# ------------------------------------------------------------------------------------ several runs, several hosts


@pytest.mark.nightly
def test_two_jobs_in_one_directory_are_told_apart(tmp_path: Path) -> None:
    directory = tmp_path / "record"
    with job(do_well, WORLD, directory) as first:
        first.wait()
    shutil.rmtree(tmp_path / "record.job")
    hung(leave_one_out, directory)
    found = explain_recording(directory)
    assert cause_in(found).finding.culprits == (2,)
    newest, other = found.runs
    assert "explained here" in newest
    assert other.endswith(": --run 1")
    assert explain_recording(directory, run=1).causes == ()
    shutil.rmtree(tmp_path / "record.job")
    with job(do_well, 2, directory) as last:
        last.wait()
    found = explain_recording(directory)
    assert (found.world_size, found.causes) == (2, ())
    assert [told.rpartition(": ")[2] for told in found.runs] == ["explained here", "--run 2", "--run 1"]
    assert cause_in(explain_recording(directory, run=2)).finding.culprits == (2,)
    with pytest.raises(UsageError, match="--run 4: the directory holds 1: begun"):
        explain_recording(directory, run=4)


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    assert not is_recording(tmp_path)
    with pytest.raises(UsageError, match="nothing is recorded in"):
        explain_recording(tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        explain_recording(tmp_path / "nowhere")


def test_what_is_one_is_known(left_out: Path) -> None:
    assert is_recording(left_out)
    assert not is_recording(left_out / "nowhere")


def stay_away(rank: int, directory: str) -> None:
    """One rank is at something else while the others make their first group."""
    rankdrill.record(directory)
    if rank == 1:
        time.sleep(FOREVER)  # stays away


def test_of_ranks_that_have_no_group_yet_it_is_told_where_they_are(tmp_path: Path) -> None:
    def is_settled_there(found: Explanation) -> bool:
        where = {rank: place.doing for place in found.places for rank in place.ranks}
        away = f"test_recording.py:{line_of('stays away')} in stay_away"
        return len(where) == 3 and away in where[1] and all("in play" in where[rank] for rank in (0, 2))

    with job(leave_early, 3, tmp_path / "record", first=stay_away) as running:
        found = explained(running.directory, is_settled_there)
    assert found.causes == ()
    assert all("had no process group for " in place.doing for place in found.places)
