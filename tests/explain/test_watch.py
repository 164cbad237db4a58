"""`rankdrill explain DIRECTORY --watch`: a job seen from another terminal while it runs, explained when it hangs."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from click.testing import CliRunner
from rich.console import Console

from rankdrill.cli import main
from rankdrill.explain.explanation import Explanation
from rankdrill.explain.recording.live import WIDE, Lines, picture
from rankdrill.explain.recording.reading import read_directory
from rankdrill.explain.recording.sight import RankSeen, Sight
from rankdrill.explain.recording.stillness import Stillness
from rankdrill.ledger import format as f
from tests.explain.flights import Flight, Op, write
from tests.explain.test_recording import leave_one_out
from tests.recording.jobs import PATIENCE_S, await_that, job
from tests.recording.test_record import steps_in


def go_until_told(rank: int, told: str) -> None:
    going = torch.ones(1)
    while going.item():
        time.sleep(0.005)
        going.fill_(float(not Path(told).exists()))
        dist.all_reduce(going, op=dist.ReduceOp.MIN)


@contextmanager
def watching(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """The command, and what it prints, where nobody has a terminal."""
    command = [sys.executable, "-m", "rankdrill", "explain", str(directory), "--watch"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def read_until(started: subprocess.Popen[str], said: str) -> list[str]:
    """The lines up to the one that says so."""
    lines: list[str] = []
    assert started.stdout is not None
    for line in started.stdout:
        lines.append(line.rstrip("\n"))
        if said in line:
            return lines
    raise AssertionError(f"{said!r} is not in {lines}")


def rest(started: subprocess.Popen[str]) -> tuple[str, int]:
    out, _ = started.communicate(timeout=PATIENCE_S)
    return out, started.returncode


def test_a_hang_is_explained_while_it_lasts_and_the_end_of_the_ranks_is_its_end(tmp_path: Path) -> None:
    directory = tmp_path / "record"
    with job(leave_one_out, 4, directory) as running:
        await_that(lambda: steps_in(directory) > 0, "ranks record")
        with watching(directory) as watched:
            lines = read_until(watched, "victims: ")
            assert any("missing call: rank 2 leaves out all_reduce #2 on 'default'" in line for line in lines)
            assert any("certain: " in line for line in lines)
            running.kill()
            out, code = rest(watched)
    assert "ranks 0, 1, 2, 3 ended without a word" in out
    assert "where the ranks are:" in out, "the explanation of what is left"
    assert code == 1


def test_where_all_stand_is_a_line_once(tmp_path: Path) -> None:
    directory = tmp_path / "record"
    with job(leave_one_out, 4, directory):
        await_that(lambda: steps_in(directory) > 0, "ranks record")
        with watching(directory) as watched:
            read_until(watched, "nobody has moved for 5 s")
            lines = read_until(watched, "rank 2 in collective.")
    assert any("ranks 0, 1, 3 in collective." in line for line in lines)


def test_a_job_that_ends_well_is_left_with_0(tmp_path: Path) -> None:
    directory, told = tmp_path / "record", tmp_path / "told"
    with job(go_until_told, 2, directory, str(told)) as running:
        await_that(lambda: steps_in(directory) > 0, "ranks record")
        with watching(directory) as watched:
            read_until(watched, "2 of 2 ranks, ")
            told.touch()
            assert running.wait() == [0, 0]
            out, code = rest(watched)
    assert "ranks 0, 1 came to the end" in out
    assert "nothing there shows which rank is at fault" in out
    assert code == 0


@pytest.mark.nightly
def test_who_has_seen_enough_leaves_with_what_is_known(tmp_path: Path) -> None:
    directory, told = tmp_path / "record", tmp_path / "told"
    with job(go_until_told, 2, directory, str(told)) as running:
        await_that(lambda: steps_in(directory) > 0, "ranks record")
        with watching(directory) as watched:
            read_until(watched, "2 of 2 ranks, ")
            watched.send_signal(signal.SIGINT)
            out, code = rest(watched)
        assert [rank.exitcode for rank in running.ranks] == [None, None]
    assert "nothing there shows which rank is at fault" in out
    assert code == 0


@pytest.mark.nightly
def test_a_directory_that_is_removed_is_one_line(tmp_path: Path) -> None:
    directory, told = tmp_path / "record", tmp_path / "told"
    with job(go_until_told, 2, directory, str(told)):
        await_that(lambda: steps_in(directory) > 0, "ranks record")
        with watching(directory) as watched:
            read_until(watched, "2 of 2 ranks, ")
            shutil.rmtree(directory)
            out, code = rest(watched)
    assert "cannot be read" in out
    assert "Traceback" not in out
    assert code == 2


@contextmanager
def on_a_terminal(*command: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 150, 0, 0))
    variables = {**os.environ, "TERM": "xterm-256color"}
    started = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=variables, start_new_session=True, close_fds=True
    )
    os.close(theirs)
    try:
        yield started, ours
    finally:
        started.kill()
        started.wait()
        os.close(ours)


def shown_until(ours: int, *said: str) -> str:
    """What the terminal gets until all that is said was there, in whatever colours and wherever lines end."""
    shown, until = b"", time.monotonic() + PATIENCE_S
    while missing := [each for each in said if each not in plain(shown)]:
        assert time.monotonic() < until, f"{missing} not in {shown[-6000:].decode(errors='replace')}"
        if select.select([ours], [], [], 0.1)[0]:
            shown += os.read(ours, 1 << 16)
    return shown.decode()


def plain(shown: bytes) -> str:
    return " ".join(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", " ", shown.decode(errors="replace")).split())


def test_on_a_terminal_each_rank_has_its_line_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    directory = tmp_path / "record"
    command = [sys.executable, "-m", "rankdrill", "explain", str(directory), "--watch"]
    with job(leave_one_out, 4, directory):
        await_that(lambda: steps_in(directory) > 0, "ranks record")
        with on_a_terminal(*command) as (started, ours):
            ranks = [f"rank {rank}" for rank in range(4)]
            shown = shown_until(ours, *ranks, "missing call: rank 2", "4 ranks, watched for", "steps", "for")
            assert "\x1b[" in shown, "it is drawn again and again"
            started.send_signal(signal.SIGINT)
            shown_until(ours, "where the ranks are:")
            assert started.wait(PATIENCE_S) == 1


def drawn(sight: Sight, width: int = 120, height: int = 40) -> str:
    text = io.StringIO()
    console = Console(file=text, width=width, height=height, color_system=None)
    console.print(picture(Path("record"), sight, 3.0, width))
    return text.getvalue()


@pytest.mark.parametrize("height", [6, 12])
def test_where_ranks_are_is_seen_on_a_screen_too_short_for_the_explanation(height: int) -> None:
    ranks = [RankSeen(rank, 7, "in all_reduce #6", 2.0) for rank in range(4)]
    explanation = Explanation("record", 4, gaps=("." * 150,) * 4)
    lines = drawn(Sight(4, tuple(ranks), explanation=explanation), height=height).splitlines()
    assert len(lines) == max(height, 4 + 1 + 4), "the explanation is left four lines at least"
    assert lines[0].startswith("record, 4 ranks")
    assert "nothing there shows which rank is at fault" in lines[1]
    assert any("lines more, when this ends" in line for line in lines)
    assert [line.split("  ")[0] for line in lines[-4:]] == [f"rank {rank}" for rank in range(4)]


@pytest.mark.parametrize("width", [120, 60, 24])
def test_however_narrow_the_screen_is_nothing_of_where_a_rank_is_is_cut_off(width: int) -> None:
    doing = "in all_reduce #1233 on 'default', at /jobs/of/somebody/language/train.py:211 in train_step"
    ranks = tuple(RankSeen(rank, 1234, doing, 12.0) for rank in range(2))
    shown = drawn(Sight(2, ranks), width)
    assert "…" not in shown
    if width < WIDE:
        assert "".join(shown.split()).count("".join(doing.split())) == 2
    assert max(map(len, shown.splitlines())) <= width


def test_many_ranks_that_do_the_same_share_a_line() -> None:
    ranks = [
        RankSeen(rank, 7 + rank % 2, "in all_reduce #6" if rank != 5 else "in barrier #6", 2.0) for rank in range(1024)
    ]
    lines = drawn(Sight(1024, tuple(ranks))).splitlines()
    assert len(lines) < 10
    assert any(line.startswith("rank 5 ") and line.endswith("for 2.0 s") for line in lines)
    assert any("7 to 8 steps" in line and "in all_reduce #6" in line for line in lines)


def test_what_ranks_recorded_is_text() -> None:
    hostile = RankSeen(0, 1, "in \x1b]0;title\x07all_reduce [red]#0", 1.0)
    assert "\x1b" not in drawn(Sight(1, (hostile,)))
    assert "[red]#0" in drawn(Sight(1, (hostile,)))
    still = Sight(1, (RankSeen(0, 1, "in \x1b]0;title\x07all_reduce", 9.0),), still=9.0)
    assert not any("\x1b" in line for line in Lines().of(still))


def test_lines_are_told_once_and_again_after_a_change() -> None:
    lines = Lines()
    going, standing = (Sight(1, (RankSeen(0, 3, "in all_reduce #1", 9.0),), still=still) for still in (0.0, 9.0))
    assert len(list(lines.of(going))) == 1
    assert list(lines.of(going)) == []
    assert len(list(lines.of(standing))) == 2
    assert list(lines.of(standing)) == []
    assert list(lines.of(going)) == ["they go on"]


def test_dumps_cannot_be_watched(tmp_path: Path) -> None:
    dumps = write(Flight({rank: [Op("all_reduce")] for rank in range(2)}), tmp_path / "dumps")
    result = CliRunner().invoke(main, ["explain", str(dumps), "--watch"])
    assert result.exit_code == 2
    assert "--watch: give the one directory that rankdrill.record writes to" in result.output


def add_up(rank: int) -> None:
    for _ in range(20):
        dist.all_reduce(torch.ones(2))


@pytest.mark.parametrize("moved", [False, True])
def test_stillness_is_what_the_newest_records_say(moved: bool, tmp_path: Path) -> None:
    with job(add_up, 1, tmp_path / "record") as running:
        assert running.wait() == [0]
    recorded = read_directory(tmp_path / "record")
    stillness = Stillness()
    stillness.look(recorded, 0.0)
    if moved:
        (path,) = (tmp_path / "record").glob("*.ledger")
        before = recorded[0].reader
        assert before is not None
        with path.open("r+b") as file:
            file.seek(f.TOTAL_OFFSET)
            file.write(struct.pack("<Q", before.total - 1))
    stillness.look(recorded, 5.0)
    assert stillness.seconds(6.0) == (1.0 if moved else 6.0)
