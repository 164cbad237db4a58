"""A rank that the kernel kills for memory is told to have been, with the group whose limit was reached."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankdrill.worlds import RankOutcome
from rankdrill.worlds.processes.cgroups import MemoryCgroup, find_memory_cgroup, memory_cgroup_of
from rankdrill.worlds.processes.nursery import KEEP_VARIABLE
from rankdrill.worlds.processes.watching import Inquest, kernel_log
from rankdrill.worlds.processes.watching.kernel_log import LOG, KernelLog
from tests.worlds.conftest import PATIENCE_S
from tests.worlds.ended import died, returned

LIMIT_MIB = 1024  # a template, its controller and two ranks need less than half
RUNS = """
import os, signal
import torch.distributed as dist
from rankdrill import World

def fill():
    dist.barrier()
    held = []
    while dist.get_rank() == 1:
        held.append(b"x" * (16 << 20))
    dist.barrier()

def kill():
    dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()

with World(2) as world:
    for body in (kill, fill, kill):
        outcome = world.run(body)
        print(outcome.ranks[1], outcome.culprits, sep="|", flush=True)
"""


@pytest.fixture
def limited() -> Iterator[MemoryCgroup]:
    """A group of this test's own, below the one that it runs in."""
    mine = memory_cgroup_of(os.getpid())
    if mine is None:
        pytest.skip("no control group of memory that can be read")
    group = MemoryCgroup(mine.mount, mine.folder / f"rankdrill-test-{secrets.token_hex(4)}", mine.version)
    file = "memory.limit_in_bytes" if group.version == 1 else "memory.max"
    try:
        group.folder.mkdir()
        (group.folder / file).write_text(str(LIMIT_MIB << 20))
        subprocess.run([sys.executable, "-c", _join(group)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        if group.folder.exists():
            group.folder.rmdir()
        pytest.skip(f"cannot make a control group with a limit in {mine.folder}: {error}")
    yield group
    until = time.monotonic() + PATIENCE_S
    while group.folder.exists():  # not before all in it are gone
        try:
            group.folder.rmdir()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def _join(group: MemoryCgroup) -> str:
    procs = str(group.folder / "cgroup.procs")
    return f"import os\nwith open({procs!r}, 'w') as file: file.write(str(os.getpid()))"


def run_in(group: MemoryCgroup, source: str) -> list[str]:
    """The lines that `source` prints in a process of the group."""
    done = subprocess.run(
        [sys.executable, "-c", f"{_join(group)}\n{source}"],
        capture_output=True,
        text=True,
        timeout=10 * PATIENCE_S,
        env=os.environ | {KEEP_VARIABLE: ""},  # a nursery would stay in the group
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_rank_that_fills_its_memory_is_killed_by_the_kernel_and_one_killed_beside_it_is_not(
    limited: MemoryCgroup,
) -> None:
    log = KernelLog()
    before, filled, after = run_in(limited, RUNS)
    logged = log.killed_for_memory()
    log.close()
    name = f"/{limited.folder.relative_to(limited.mount)}"
    for line in (before, after):
        assert line.startswith("rank 1 killed by SIGKILL, by os.kill at ")
    assert filled.startswith(
        f"rank 1 killed by SIGKILL, by the kernel: out of memory (cgroup {name}, limit {LIMIT_MIB} MiB), "
        "after collective.barrier #0 on 'default', at "
    )
    assert filled.endswith("|(1,)")
    if log_can_be_read():
        assert False in logged.values(), "it says so, and that it was not for want of the machine's memory"


def log_can_be_read() -> bool:
    try:
        with LOG.open("rb"):
            return os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"
    except OSError:
        return False


# ------------------------------------------------------------------------------------------------ which group

V1_CGROUPS = """\
5:devices:/job
4:cpu,memory:/job/7
1:name=systemd:/
0::/
"""
V1_MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / {mount}/cpu,memory rw,relatime - cgroup cgroup rw,cpu,memory
36 31 0:33 / {mount}/devices rw,relatime shared:7 - cgroup cgroup rw,devices
41 31 0:38 / {mount}/unified rw,relatime - cgroup2 cgroup2 rw
"""
V2_MOUNTS = "30 23 0:26 / {mount} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def test_version_one_is_taken_where_it_has_the_controller(tmp_path: Path) -> None:
    group = find_memory_cgroup(V1_CGROUPS, V1_MOUNTS.format(mount=tmp_path))
    assert group == MemoryCgroup(tmp_path / "cpu,memory", tmp_path / "cpu,memory" / "job" / "7", 1)


def test_version_two_is_taken_where_there_is_no_other(tmp_path: Path) -> None:
    group = find_memory_cgroup("0::/job.slice/7\n", V2_MOUNTS.format(mount=tmp_path))
    assert group == MemoryCgroup(tmp_path, tmp_path / "job.slice" / "7", 2)


def test_a_container_sees_its_own_part(tmp_path: Path) -> None:
    mounts = f"35 31 0:32 /docker/12 {tmp_path} ro - cgroup cgroup rw,memory\n"
    inside = find_memory_cgroup("4:memory:/docker/12/inner\n", mounts)
    assert inside is not None
    assert inside.folder == tmp_path / "inner"
    outside = find_memory_cgroup("4:memory:/elsewhere\n", mounts)
    assert outside is not None
    assert outside.folder == tmp_path


def test_where_there_is_none(tmp_path: Path) -> None:
    assert find_memory_cgroup("5:devices:/\n", V1_MOUNTS.format(mount=tmp_path)) is None
    assert find_memory_cgroup("0::/\n", "") is None


def version_two(mount: Path, limits: dict[str, str]) -> MemoryCgroup:
    """A hierarchy as the kernel shows it, made of files; the innermost group is the last of `limits`."""
    folder = mount
    for name, limit in limits.items():
        folder /= name
        folder.mkdir()
        (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n")
    return MemoryCgroup(mount, folder, 2)


def test_of_nested_groups_the_one_whose_limit_comes_first_is_named(tmp_path: Path) -> None:
    group = version_two(tmp_path, {"slice": str(512 << 20), "job": str(1 << 30), "step": "max"})
    assert str(group) == "cgroup /slice, limit 512 MiB"
    assert group.kills() == 2


def test_a_group_without_a_limit_and_a_small_one(tmp_path: Path) -> None:
    assert str(version_two(tmp_path, {"job": "max"})) == "cgroup /job, without a limit"
    assert str(version_two(tmp_path / "job", {"one": str(96 << 10)})) == "cgroup /one, limit 96 KiB"


def test_where_the_kernel_does_not_count(tmp_path: Path) -> None:
    assert MemoryCgroup(tmp_path, tmp_path, 2).kills() is None


# ------------------------------------------------------------------------------------------------ who is put down to it


KILLED = (
    "3,1405,54918860581,-;Memory cgroup out of memory: Killed process {} (python) total-vm:1484904kB, "
    "anon-rss:871372kB, file-rss:19328kB, shmem-rss:0kB, UID:0 pgtables:2004kB oom_score_adj:0\n SUBSYSTEM=memory\n"
)
KILLED_ON_THE_MACHINE = KILLED.replace("Memory cgroup out", "Out")


class Client:
    """Stands for a template's client where the kernel's count is made up; nothing else is asked of it."""

    def __init__(self, group: MemoryCgroup | None) -> None:
        self.memory_cgroup = group


def explained(client: Client, directory: Path, rise: int, *ranks: RankOutcome, logged: str = "") -> list[str]:
    """What is said of `ranks` where the kernel has killed `rise` processes during the run, and `logged` something.

    The process of rank 3, say, is number 1003.
    """
    log = directory / "kmsg"
    log.write_text(KILLED.format(1000))  # before this run began
    inquest = Inquest(client, directory, KernelLog(log))  # type: ignore[arg-type]
    inquest.begin()
    with log.open("a") as file:
        file.write(logged)
    if client.memory_cgroup is not None:
        events = client.memory_cgroup.folder / "memory.events"
        events.write_text(f"oom 9\noom_kill {(client.memory_cgroup.kills() or 0) + rise}\n")
    told = inquest.explain(ranks, (), {rank.rank: 1000 + rank.rank for rank in ranks})
    inquest.close()
    return [str(rank) for rank in told]


def test_only_who_was_killed_and_not_by_plan_is_put_down_to_the_kernel(tmp_path: Path) -> None:
    client = Client(version_two(tmp_path, {"job": str(512 << 20)}))
    ranks = died(0), died(1, signal=15), died(2, by_plan=True), returned(3)
    end = "before its first step"
    by_kernel = "by the kernel: out of memory (cgroup /job, limit 512 MiB)"
    others = [f"rank 1 killed by SIGTERM {end}", f"rank 2 killed by SIGKILL {end}, as planned", "rank 3 returned"]
    assert explained(client, tmp_path, 0, *ranks) == [f"rank 0 killed by SIGKILL {end}", *others]
    assert explained(client, tmp_path, 1, *ranks) == [f"rank 0 killed by SIGKILL, {by_kernel}, {end}", *others]


def test_of_two_that_were_killed_nobody_knows_which_one_the_kernel_took(tmp_path: Path) -> None:
    client = Client(version_two(tmp_path, {"job": "max"}))
    told = explained(client, tmp_path, 1, died(0), died(1))
    count = "while the kernel killed 1 of 2 processes for memory (cgroup /job, without a limit)"
    assert told == [f"rank {rank} killed by SIGKILL, {count}, before its first step" for rank in (0, 1)]
    both = explained(client, tmp_path, 2, died(0), died(1))
    assert all(", by the kernel: out of memory (cgroup /job, without a limit)," in line for line in both)


def test_where_nothing_is_counted_nothing_is_said(tmp_path: Path) -> None:
    assert explained(Client(None), tmp_path, 1, died(0)) == ["rank 0 killed by SIGKILL before its first step"]


@pytest.fixture
def numbers_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """As outside of containers."""
    monkeypatch.setattr(kernel_log, "_numbers_are_ours", lambda: True)


@pytest.mark.usefixtures("numbers_are_ours")
def test_the_log_says_whom_the_kernel_took(tmp_path: Path) -> None:
    client = Client(version_two(tmp_path, {"job": "max"}))
    told = explained(client, tmp_path, 1, died(0), died(1), logged=KILLED.format(1001) + KILLED.format(77))
    by_kernel = "by the kernel: out of memory (cgroup /job, without a limit)"
    end = "before its first step"
    assert told == [f"rank 0 killed by SIGKILL {end}", f"rank 1 killed by SIGKILL, {by_kernel}, {end}"]


@pytest.mark.usefixtures("numbers_are_ours")
def test_the_log_is_enough_where_nothing_is_counted(tmp_path: Path) -> None:
    (told,) = explained(Client(None), tmp_path, 0, died(2), logged=KILLED_ON_THE_MACHINE.format(1002))
    assert told == "rank 2 killed by SIGKILL, by the kernel: out of memory (of the machine), before its first step"


@pytest.mark.usefixtures("numbers_are_ours")
def test_what_the_log_says_of_others_is_nothing_about_ranks(tmp_path: Path) -> None:
    for other in (KILLED.format(10020), "6,7,8,-;a python said: Out of memory, 1002\n", KILLED.format(77)):
        (told,) = explained(Client(None), tmp_path, 0, died(2), logged=other)
        assert told == "rank 2 killed by SIGKILL before its first step"


def test_numbers_of_another_namespace_are_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "_numbers_are_ours", lambda: False)
    (told,) = explained(Client(None), tmp_path, 0, died(2), logged=KILLED.format(1002))
    assert told == "rank 2 killed by SIGKILL before its first step"
