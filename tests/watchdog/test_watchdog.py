"""The watchdog of real jobs: it says where they hang, with stacks, and nobody notices that it is there."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.errors import UsageError
from rankdrill.watchdog.starting import open_lock, take
from rankdrill.watchdog.watching import Watchdog
from tests.recording.jobs import Job, await_that, job
from tests.recording.test_record import steps_in

FILE = Path(__file__)
FOREVER = 1000.0
LATER = 8.0  # by when also on a busy machine a rank is where it stays
LONG = 600.0  # after which nothing is reported here


def line_of(mark: str) -> int:
    lines = FILE.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


def watched(seconds: float) -> Callable[[int, str], None]:
    return {2.0: watched_for_2, LATER: watched_for_8, LONG: watched_for_long}[seconds]


def watched_for_2(rank: int, directory: str) -> None:
    rankdrill.record(directory, hang_after=2)


def watched_for_8(rank: int, directory: str) -> None:
    rankdrill.record(directory, hang_after=LATER)


def watched_for_long(rank: int, directory: str) -> None:
    rankdrill.record(directory, hang_after=LONG)


def watchdogs_of(directory: Path) -> list[int]:
    """The processes that watch what is recorded there."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            command = (place / "cmdline").read_bytes().split(b"\0")
            state = (place / "stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if b"rankdrill.watchdog" in command and os.fsencode(directory) in command and state not in (b"Z", b"X"):
            found.append(int(place.name))
    return found


def reports_in(directory: Path) -> list[str]:
    return [path.read_text() for path in sorted(directory.glob("*.hang"))]


def report_of(directory: Path, said: str = "") -> str:
    """The first report that says so, once it is there: on a busy machine one may come before ranks hang."""
    await_that(lambda: any(said in report for report in reports_in(directory)), f"there is a report of {said!r}")
    return next(report for report in reports_in(directory) if said in report)


@contextmanager
def watched_job(
    body: Callable[..., Any], ranks: int, directory: Path, *args: Any, after: float = 2.0, **more: Any
) -> Iterator[Job]:
    """A job that is watched; at its end nobody is left to watch it."""
    with job(body, ranks, directory, *args, **{"first": watched(after), **more}) as running:
        yield running
    await_that(lambda: watchdogs_of(directory) == [], "the watchdog has ended")


# ------------------------------------------------------------------------------------ what it writes


def leave_one_out(rank: int) -> None:
    for round_ in range(4):
        if (rank, round_) != (2, 1):
            dist.all_reduce(torch.ones(8))  # left out
        dist.all_reduce(torch.ones(8))  # met
    dist.barrier()


def test_a_hang_that_is_certain_is_told_long_before_its_time_with_everybodys_stack(tmp_path: Path) -> None:
    with watched_job(leave_one_out, 4, tmp_path / "record", after=LONG) as running:
        report = report_of(tmp_path / "record")
        first, *_ = report.splitlines()
        assert first == "this job hangs for ever: that is certain"
        assert "missing call: rank 2 leaves out all_reduce #2 on 'default'" in report
        assert f"{FILE.name}:{line_of('left out')} in leave_one_out" in report
        stacks = report[report.index("stacks:") :]
        assert f'File "{FILE}", line {line_of("met")} in leave_one_out' in stacks
        assert "heart.py" not in stacks
        assert all(f"{rank.pid}" in report for rank in running.ranks)
        assert [rank.exitcode for rank in running.ranks] == [None] * 4, "nobody is ended"
        assert len(reports_in(tmp_path / "record")) == 1


def apart(rank: int) -> None:
    dist.all_reduce(torch.ones(8))
    if rank:
        dist.barrier()
    dist.all_reduce(torch.ones(8))


def test_of_two_it_is_certain_that_they_hang_though_not_who_is_right(tmp_path: Path) -> None:
    with watched_job(apart, 2, tmp_path / "record", after=LONG):
        report = report_of(tmp_path / "record")
    assert report.startswith("this job hangs for ever: that is certain")
    assert "nobody known to be at fault: " in report


def sum_up_for_ever(rank: int) -> None:
    dist.all_reduce(torch.ones(8))
    if rank == 1:
        sum(itertools.repeat(0))  # keeps the GIL
    dist.all_reduce(torch.ones(8))


@pytest.mark.nightly
def test_who_keeps_the_gil_is_told_with_its_stack(tmp_path: Path) -> None:
    with watched_job(sum_up_for_ever, 2, tmp_path / "record", after=LATER):
        told = f'File "{FILE}", line {line_of("keeps the GIL")} in sum_up_for_ever'
        report = report_of(tmp_path / "record", told)
    assert report.startswith("this job has not moved for ")
    assert re.search(r"^  ranks? (0, )?1 computing ", report, re.MULTILINE)


def stop(rank: int) -> None:
    dist.all_reduce(torch.ones(8))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(torch.ones(8))


def test_who_is_stopped_is_told_and_left_so(tmp_path: Path) -> None:
    with watched_job(stop, 2, tmp_path / "record", after=LATER) as running:
        report = report_of(tmp_path / "record", "rank 1 stopped by a signal")
        pid = running.ranks[1].pid
        assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    assert "rank 1 did not print any" in report or "by py-spy, from outside:" in report
    assert "in stop" in report[report.index("stacks:") :], "rank 0 did"


def wait_in_the_kernel(rank: int, pipe: str) -> None:
    dist.all_reduce(torch.ones(8))
    if rank == 1:
        # C that waits, keeps the GIL and begins again whatever interrupts it.
        held = ctypes.PyDLL(None)
        fd = os.open(pipe, os.O_RDWR)
        held.read(fd, ctypes.create_string_buffer(1), 1)  # reads
    dist.all_reduce(torch.ones(8))


def test_who_waits_in_a_system_call_goes_on_to_wait_there(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with watched_job(wait_in_the_kernel, 2, tmp_path / "record", str(tmp_path / "pipe"), after=LATER) as running:
        report_of(tmp_path / "record", f'File "{FILE}", line {line_of("reads")} in wait_in_the_kernel')
        with (tmp_path / "pipe").open("wb") as pipe:
            pipe.write(b"1")
        assert running.wait() == [0, 0], "what was interrupted went on"


def without_answers(rank: int, directory: str) -> None:
    signal.signal(signal.SIGURG, lambda *_: os._exit(3))
    rankdrill.record(directory, hang_after=2)


def no_answers_later(rank: int, directory: str) -> None:
    rankdrill.record(directory, hang_after=2)
    signal.signal(signalnum=signal.SIGURG, handler=lambda *_: os._exit(3))


@pytest.mark.parametrize("first", [without_answers, no_answers_later])
def test_who_uses_the_signal_itself_is_not_sent_it(first: Callable[..., None], tmp_path: Path) -> None:
    with watched_job(leave_one_out, 4, tmp_path / "record", first=first) as running:
        report = report_of(tmp_path / "record", "missing call")
        assert [rank.exitcode for rank in running.ranks] == [None] * 4
    assert "ranks 0, 1, 2, 3 did not print any" in report or "by py-spy, from outside:" in report


def pause_and_go_on(rank: int, told: str) -> None:
    dist.all_reduce(torch.ones(8))
    while rank == 0 and not Path(told).exists():
        time.sleep(0.05)
    dist.all_reduce(torch.ones(8))


def test_what_does_not_move_for_so_long_is_told_though_it_then_goes_on(tmp_path: Path) -> None:
    with watched_job(pause_and_go_on, 2, tmp_path / "record", str(tmp_path / "told")) as running:
        report = report_of(tmp_path / "record", "in pause_and_go_on")
        assert report.startswith("this job has not moved for ")
        assert "certain" not in report
        (tmp_path / "told").touch()
        assert running.wait() == [0, 0]


def work(rank: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    going = torch.ones(1)
    while going.item():
        time.sleep(0.3 * rank)
        going.fill_(float(time.monotonic() < until))
        dist.all_reduce(going, op=dist.ReduceOp.MIN)


def test_of_a_job_that_does_well_nothing_is_told(tmp_path: Path) -> None:
    with watched_job(work, 2, tmp_path / "record", 6.0) as running:
        await_that(lambda: bool(watchdogs_of(tmp_path / "record")), "it is watched")
        assert running.wait() == [0, 0]
    assert reports_in(tmp_path / "record") == []


# ------------------------------------------------------------------------------------ what it is to others


def test_there_is_one_of_a_host_however_many_ranks_and_it_is_nobodys_child(tmp_path: Path) -> None:
    with watched_job(leave_one_out, 4, tmp_path / "record", after=LONG) as running:
        report_of(tmp_path / "record")
        (watchdog,) = watchdogs_of(tmp_path / "record")
        parent = int(Path(f"/proc/{watchdog}/stat").read_text().rpartition(")")[2].split()[1])
        assert parent not in {os.getpid(), *(rank.pid for rank in running.ranks)}
        assert os.getpriority(os.PRIO_PROCESS, watchdog) == 19
        assert {os.readlink(f"/proc/{watchdog}/fd/{fd}") for fd in (0, 1, 2)} == {os.devnull}, "no pipe waits for it"
        assert os.getsid(watchdog) not in {os.getsid(rank.pid or 0) for rank in running.ranks}


def test_it_ends_with_a_job_that_is_killed(tmp_path: Path) -> None:
    directory = tmp_path / "record"
    with watched_job(leave_one_out, 4, directory, after=LONG) as running:
        await_that(lambda: bool(watchdogs_of(directory)), "it is watched")
        running.kill()
        await_that(lambda: watchdogs_of(directory) == [], "the watchdog has ended, too")


@pytest.mark.nightly
def test_a_second_job_in_the_same_directory_is_watched_too(tmp_path: Path) -> None:
    directory = tmp_path / "record"
    with job(do_nothing, 2, directory, first=watched_for_long) as first:
        assert first.wait() == [0, 0]
    shutil.rmtree(f"{directory}.job")
    with watched_job(leave_one_out, 4, directory, after=LONG):
        assert "rank 2 leaves out all_reduce #2" in report_of(directory)
        assert len(watchdogs_of(directory)) == 1


@pytest.mark.nightly
def test_where_it_was_ended_the_ranks_start_another(tmp_path: Path) -> None:
    """As Slurm ends it with the step of the job that started it."""
    directory = tmp_path / "record"
    with watched_job(work, 2, directory, FOREVER, after=LONG):
        await_that(lambda: len(watchdogs_of(directory)) == 1, "somebody watches")
        (first,) = watchdogs_of(directory)
        os.kill(first, signal.SIGKILL)
        await_that(lambda: len(watchdogs_of(directory)) == 1 and watchdogs_of(directory) != [first], "another one does")


def test_where_its_lock_was_removed_the_next_one_takes_its_place(tmp_path: Path) -> None:
    directory = tmp_path / "record"
    with watched_job(leave_one_out, 4, directory, after=LONG):
        await_that(lambda: said_by_watchdog(directory) == 0, "it is watched")
        (first,) = watchdogs_of(directory)
        (lock,) = directory.glob("*.watchdog")
        lock.unlink()
        shutil.rmtree(f"{directory}.job")
        with job(leave_one_out, 4, directory, first=watched_for_long):
            await_that(lambda: len(watchdogs_of(directory)) == 1 and watchdogs_of(directory) != [first], "the next")


def test_who_begins_while_it_takes_its_leave_is_watched_by_it(tmp_path: Path) -> None:
    """A rank that finds the lock taken starts none; so who gives it back has another look."""
    directory = tmp_path / "record"
    directory.mkdir(mode=0o700)
    lock = open_lock(directory)
    assert take(lock)
    watchdog = Watchdog(directory, lock, lambda reports: None)
    try:
        assert not watchdog._is_wanted_again()
        assert take(lock)
        with job(leave_one_out, 4, directory, first=watched_for_long):
            await_that(lambda: steps_in(directory) >= 2, "all have found that there is one")
            assert watchdog._is_wanted_again()
            other = open_lock(directory)
            assert not take(other), "it has the lock again"
            os.close(other)
        await_that(lambda: not watchdog._is_wanted_again(), "they are gone")
        assert watchdogs_of(directory) == []
    finally:
        os.close(lock)


def do_nothing(rank: int) -> None:
    dist.barrier()


def test_only_this_user_may_read_what_it_writes(tmp_path: Path) -> None:
    with watched_job(leave_one_out, 4, tmp_path / "record", first=open_to_all):
        report_of(tmp_path / "record")
    kinds = {path.suffix for path in (tmp_path / "record").iterdir()}
    assert kinds == {".ledger", ".log", ".stacks", ".hang", ".watchdog"}
    assert (tmp_path / "record").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "record").iterdir()} == {0o600}


def open_to_all(rank: int, directory: str) -> None:
    os.umask(0)
    rankdrill.record(directory, hang_after=2)


def test_nothing_is_watched_unless_one_asks(tmp_path: Path) -> None:
    with job(leave_one_out, 4, tmp_path / "record"):
        await_that(lambda: len(list((tmp_path / "record").glob("*.log"))) == 4, "all record")
        assert {path.suffix for path in (tmp_path / "record").iterdir()} == {".ledger", ".log"}


# ------------------------------------------------------------------------------------ where it cannot be


def work_until_told(rank: int, told: str) -> None:
    going = torch.ones(1)
    while going.item():
        going.fill_(float(not Path(told).exists()))
        dist.all_reduce(going, op=dist.ReduceOp.MIN)


def test_a_directory_that_is_removed_ends_it_and_not_the_job(tmp_path: Path) -> None:
    directory = tmp_path / "record"
    with watched_job(work_until_told, 2, directory, str(tmp_path / "told")) as running:
        await_that(lambda: bool(watchdogs_of(directory)) and steps_in(directory) > 20, "it is watched, and moves")
        shutil.rmtree(directory)
        await_that(lambda: watchdogs_of(directory) == [], "the watchdog has ended")
        (tmp_path / "told").touch()
        assert running.wait() == [0, 0]


def move_and_stand_still(rank: int, moving: str, standing: str) -> None:
    work_until_told(rank, moving)
    pause_and_go_on(rank, standing)


def fill(disk: Path) -> None:
    with (disk / "filling").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def said_by_watchdog(directory: Path) -> int:
    """How many reports it says that it had to write; -1 before it says anything."""
    texts = [path.read_text() for path in directory.glob("*.watchdog")]
    return int(json.loads(texts[0])["reports"]) if texts and texts[0] else -1


def test_a_full_disk_costs_the_report_and_nothing_else(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "none", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"this machine mounts nothing for its tests: {mounted.stderr.decode().strip()}")
    directory = disk / "record"
    try:
        marks = tmp_path / "full", tmp_path / "told"
        with watched_job(move_and_stand_still, 2, directory, *map(str, marks)) as running:
            await_that(lambda: said_by_watchdog(directory) >= 0 and steps_in(directory) >= 3, "it is watched")
            fill(disk)
            reports, said = reports_in(directory), said_by_watchdog(directory)
            marks[0].touch()
            await_that(lambda: said_by_watchdog(directory) > said, "it would have been told")
            assert reports_in(directory) == reports
            marks[1].touch()
            assert running.wait() == [0, 0], (disk / "record.job" / "0.out").read_text()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def in_what_cannot_be_locked(rank: int, directory: str) -> None:
    def flock(fd: int, how: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    fcntl.flock = flock  # type: ignore[assignment]
    rankdrill.record(directory, hang_after=2)


def test_where_files_cannot_be_locked_a_line_says_that_nobody_watches(tmp_path: Path) -> None:
    with job(do_nothing, 1, tmp_path / "record", first=in_what_cannot_be_locked) as running:
        assert running.wait() == [0]
    (line,) = (tmp_path / "record.job" / "0.out").read_text().splitlines()
    assert line == f"rankdrill: nobody watches what is recorded in {tmp_path / 'record'}: Function not implemented"
    assert len(list((tmp_path / "record").glob("*.ledger"))) == 1


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "300", True])
def test_times_that_cannot_be(seconds: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^record\(hang_after=.*\): give seconds above 0$"):
        rankdrill.record(tmp_path / "record", hang_after=seconds)
    assert not (tmp_path / "record").exists()


def test_a_variable_that_is_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKDRILL_HANG_AFTER", "soon")
    with pytest.raises(UsageError, match=r"^RANKDRILL_HANG_AFTER=soon: give seconds above 0$"):
        rankdrill.record(tmp_path / "record")
