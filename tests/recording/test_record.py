"""What `rankdrill.record` leaves on the disk, and what it costs a job where it cannot: nothing but the record."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.errors import UsageError
from rankdrill.explain.recording.reading import read_directory
from rankdrill.explain.recording.runs import told_apart
from rankdrill.ledger import LedgerReader
from rankdrill.recording.environment import LAUNCHER_VARIABLES
from rankdrill.step import Kind
from tests.recording.jobs import await_that, job
from tests.torch_can import end_group

SECRET = "hunter2-is-no-password"
CALLS = 5


def sum_up(rank: int, calls: int = CALLS) -> None:
    for call in range(calls):
        tensor = torch.full((3,), rank + call)
        dist.all_reduce(tensor)
        size = dist.get_world_size()
        assert tensor.tolist() == [sum(range(size)) + size * call] * 3
    end_group()


def ledgers(directory: Path) -> dict[int, LedgerReader]:
    readers = [LedgerReader(path) for path in directory.glob("*.ledger")]
    return {reader.rank: reader for reader in readers}


def test_each_rank_leaves_its_steps_and_who_it_was(tmp_path: Path) -> None:
    with job(sum_up, 2, tmp_path / "record") as ranks:
        assert ranks.wait() == [0, 0]
    for rank, reader in ledgers(tmp_path / "record").items():
        view = reader.view()
        *steps, left = [record.step for record in view]
        assert left.name == "group.destroy_process_group"
        assert [step.op for step in steps] == ["all_reduce"] * CALLS
        assert [(group.label, group.ranks()) for group in view.groups] == [("default", (0, 1))]
        assert {step.kind for step in steps} == {Kind.COLLECTIVE}
        assert steps[-1].site is not None
        assert steps[-1].site.file == __file__
        assert (reader.rank, reader.world_size) == (rank, 2)
        assert reader.heart_ns
    (run,) = told_apart(read_directory(tmp_path / "record"))
    assert sorted(run.ranks) == [0, 1]
    names = {group.run for one in run.ranks.values() for group in one.groups}
    assert len(names) == 1
    assert names != {""}
    assert [one.end.how for one in run.ranks.values() if one.end] == ["exit", "exit"]


def open_to_all(rank: int, directory: str) -> None:
    os.umask(0)
    rankdrill.record(directory)


def test_nobody_else_may_read_it_whatever_the_umask(tmp_path: Path) -> None:
    with job(sum_up, 1, tmp_path / "record", first=open_to_all) as ranks:
        ranks.wait()
    assert (tmp_path / "record").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "record").iterdir()} == {0o600}


def with_secrets(rank: int, directory: str) -> None:
    os.environ.update(API_TOKEN=SECRET, SLURM_JOB_PASSWORD=SECRET, TORCHELASTIC_RUN_ID="run-7", SLURM_JOB_ID="12")
    sys.argv = ["train.py", "--key", SECRET]
    rankdrill.record(directory)


def fail_telling(rank: int) -> None:
    dist.barrier()  # before, one that ends at once may keep the other from meeting it
    raise ValueError(SECRET)


def test_of_the_environment_only_what_launchers_set_is_written(tmp_path: Path) -> None:
    with job(fail_telling, 2, tmp_path / "record", first=with_secrets) as ranks:
        assert ranks.wait() == [1, 1]
    for path in (tmp_path / "record").iterdir():
        assert SECRET.encode() not in path.read_bytes(), path
    for one in read_directory(tmp_path / "record"):
        assert one.launcher["TORCHELASTIC_RUN_ID"] == "run-7"
        assert one.launcher["SLURM_JOB_ID"] == "12"
        assert set(one.launcher) <= set(LAUNCHER_VARIABLES)
        assert one.end is not None
        assert (one.end.how, one.end.error, Path(one.end.file).name) == ("raised", "ValueError", Path(__file__).name)


def test_docs_list_every_variable() -> None:
    text = (Path(__file__).parents[2] / "docs" / "record.md").read_text()
    assert [name for name in LAUNCHER_VARIABLES if f"`{name}`" not in text] == []


# ------------------------------------------------------------------------------------ where it cannot be written


def in_what_is_no_directory(rank: int, directory: str) -> None:
    Path(directory).write_text("a file")
    assert rankdrill.record(directory).path is None


def in_what_cannot_be_made(rank: int, directory: str) -> None:
    assert rankdrill.record("/proc/self/rankdrill").path is None


def on_a_full_disk(rank: int, directory: str) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    recording = rankdrill.record(directory)
    assert recording.path is None
    assert list(Path(directory).iterdir()) == []


@pytest.mark.parametrize("first", [in_what_is_no_directory, in_what_cannot_be_made, on_a_full_disk])
def test_what_cannot_be_written_costs_a_line_and_no_more(first: Any, tmp_path: Path) -> None:
    with job(sum_up, 1, tmp_path / "record", first=first) as ranks:
        assert ranks.wait() == [0], (tmp_path / "record.job" / "0.out").read_text()
    (line,) = (tmp_path / "record.job" / "0.out").read_text().splitlines()
    assert line.startswith("rankdrill: nothing is recorded in ")


def on_a_small_disk(rank: int, directory: str) -> None:
    assert rankdrill.record(str(Path(directory) / "small" / "record")).path is None


def test_a_small_disk_is_left_empty(tmp_path: Path) -> None:
    disk = tmp_path / "record" / "small"
    disk.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"this machine mounts nothing for its tests: {mounted.stderr.decode().strip()}")
    try:
        with job(sum_up, 1, tmp_path / "record", first=on_a_small_disk) as ranks:
            assert ranks.wait() == [0], (tmp_path / "record.job" / "0.out").read_text()
        assert list((disk / "record").iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def steps_in(record: Path) -> int:
    if not record.is_dir():
        return 0
    return max((one.reader.total for one in read_directory(record) if one.reader is not None), default=0)


def sum_until_told(rank: int, told: str) -> None:
    sum_up_once = torch.ones(1)
    going = torch.ones(1)
    while going.item():
        dist.all_reduce(sum_up_once)
        going.fill_(float(not Path(told).exists()))
        dist.all_reduce(going, op=dist.ReduceOp.MIN)
    dist.barrier(dist.new_group([0, 1]))  # who has connected must not go while the other still does
    end_group()


def test_a_directory_that_is_removed_costs_the_record(tmp_path: Path) -> None:
    record, told = tmp_path / "record", tmp_path / "told"
    with job(sum_until_told, 2, record, str(told)) as ranks:
        await_that(lambda: steps_in(record) > 20, "steps come")
        shutil.rmtree(record)
        told.touch()
        assert ranks.wait() == [0, 0]
    assert not record.exists()


# ------------------------------------------------------------------------------------ when it begins


def twice(rank: int, directory: str) -> None:
    one, other = rankdrill.record(directory), rankdrill.record(os.path.relpath(directory))
    assert one is other
    assert rankdrill.record(f"{directory}-another") is one
    assert one.open


def test_asked_twice_it_is_one_record(tmp_path: Path) -> None:
    with job(sum_up, 1, tmp_path / "record", first=twice) as ranks:
        assert ranks.wait() == [0], (tmp_path / "record.job" / "0.out").read_text()
    assert len(list((tmp_path / "record").glob("*.ledger"))) == 1
    assert "is recorded in" in (tmp_path / "record.job" / "0.out").read_text()


def not_yet(rank: int, directory: str) -> None:
    """What is recorded begins later."""


def record_later(rank: int, directory: str) -> None:
    """Groups that were made before are held by whoever made them, and asked for again."""
    whole, pair = dist.group.WORLD, dist.new_group([0, 1])
    dist.all_reduce(torch.ones(1))
    dist.all_reduce(torch.ones(1), group=pair)
    rankdrill.record(directory)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    dist.all_reduce(tensor, group=whole)
    dist.all_reduce(tensor, group=pair)
    dist.broadcast(tensor, src=1, group=pair)
    assert tensor.item() == 8
    assert dist.get_process_group_ranks(pair) == [0, 1]
    work = dist.all_reduce(tensor, group=pair, async_op=True)
    work.wait()
    dist.destroy_process_group(pair)
    dist.barrier()
    end_group()


def test_groups_that_were_there_before_are_recorded_too(tmp_path: Path) -> None:
    with job(record_later, 2, tmp_path / "record", str(tmp_path / "record"), first=not_yet) as ranks:
        assert ranks.wait() == [0, 0], (tmp_path / "record.job" / "0.out").read_text()
    for one in read_directory(tmp_path / "record"):
        assert one.reader is not None
        steps = [record.step for record in one.reader.view()]
        assert [(step.op, step.target == "default") for step in steps] == [
            ("all_reduce", True),
            ("all_reduce", True),
            ("all_reduce", False),
            ("broadcast", False),
            ("all_reduce", False),
            ("barrier", True),
            ("destroy_process_group", True),
        ]
        assert [group.calls_before for group in one.groups] == [1, 1]


def close_in_between(rank: int) -> None:
    dist.all_reduce(torch.ones(1))
    rankdrill.record(os.environ["DIRECTORY"]).close()
    dist.all_reduce(torch.ones(1))
    dist.all_reduce(torch.ones(1), group=dist.new_group([0]))
    end_group()


def knowing_where(rank: int, directory: str) -> None:
    os.environ["DIRECTORY"] = directory
    rankdrill.record(directory)


def test_after_it_is_closed_nothing_is_recorded(tmp_path: Path) -> None:
    with job(close_in_between, 1, tmp_path / "record", first=knowing_where) as ranks:
        assert ranks.wait() == [0], (tmp_path / "record.job" / "0.out").read_text()
    (reader,) = ledgers(tmp_path / "record").values()
    assert reader.total == 1


@pytest.mark.parametrize("size", [0, 1 << 20, (64 << 20) + 1, "16M", True])
def test_sizes_that_cannot_be(size: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^record\(size=.*\): a record takes 2097152 to 67108864 bytes$"):
        rankdrill.record(tmp_path / "record", size=size)
    assert not (tmp_path / "record").exists()


def test_without_a_directory_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANKDRILL_RECORD", raising=False)
    recording = rankdrill.record()
    assert not recording.open
    assert "RANKDRILL_RECORD" in recording.why


@pytest.mark.ranks(2)
def test_a_rank_of_a_world_is_recorded_already(rank: Any, tmp_path: Path) -> None:
    recording = rankdrill.record(tmp_path / "record")
    dist.barrier()
    assert not recording.open
    assert "a rank of rankdrill's own" in recording.why


def fork_and_sum(rank: int) -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    dist.barrier()


def test_a_forked_child_says_nothing(tmp_path: Path) -> None:
    with job(fork_and_sum, 1, tmp_path / "record") as ranks:
        assert ranks.wait() == [0]
    (log,) = (tmp_path / "record").glob("*.log")
    ends = [line["end"] for line in map(json.loads, log.read_text().splitlines()) if "end" in line]
    assert ends == ["exit"]
