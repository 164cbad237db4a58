"""What ranks print is kept, whoever prints it and however the rank ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import pytest
import torch.distributed as dist

from rankdrill import World
from rankdrill.worlds.processes.output import KEPT_BYTES, OutputFile


def test_each_rank_keeps_its_own(four: World) -> None:
    def body() -> None:
        print(f"hello from {dist.get_rank()}")
        print(f"trouble on {dist.get_rank()}", file=sys.stderr)

    outcome = four.run(body)
    assert [rank.stdout for rank in outcome.ranks] == [f"hello from {rank}\n" for rank in range(4)]
    assert [rank.stderr for rank in outcome.ranks] == [f"trouble on {rank}\n" for rank in range(4)]


def test_below_python_and_in_order(two: World) -> None:
    def body() -> None:
        print("one", end=" ")
        os.write(1, b"two ")
        print("three", end=" ")
        libc = ctypes.CDLL(None)
        libc.puts(b"four")
        libc.fflush(None)
        os.system("echo five")
        os.write(2, b"six")

    for rank in two.run(body).ranks:
        assert rank.stdout == "one two three four\nfive\n"
        assert rank.stderr == "six"


def test_a_killed_rank_has_said_what_it_said(two: World) -> None:
    def body() -> None:
        print("a line")
        print("and the beginning of", end="")
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    assert two.run(body).ranks[1].stdout == "a line\nand the beginning of"


def test_a_stuck_rank_has_said_what_it_said(two: World) -> None:
    def body() -> None:
        print("going to sleep", end="")
        time.sleep(1000)

    assert two.run(body, deadline=0.5).ranks[0].stdout == "going to sleep"


def test_a_run_has_only_its_own_output(two: World) -> None:
    for turn in ("first", "second", "third"):
        assert [rank.stdout for rank in two.run(print, turn).ranks] == [f"{turn}\n"] * 2
    assert [rank.stdout for rank in two.run(lambda: None).ranks] == ["", ""]


def test_much_output_is_bounded_and_its_tail_kept(two: World) -> None:
    def body() -> None:
        for number in range(30_000):
            os.write(1, b"%099d\n" % number)

    for rank in two.run(body).ranks:
        assert len(rank.stdout) < KEPT_BYTES + 100
        assert rank.stdout.startswith(f"[{3_000_000 - KEPT_BYTES} bytes dropped]\n")
        assert rank.stdout.endswith("00029999\n")
    assert [rank.stdout for rank in two.run(print, "small").ranks] == ["small\n"] * 2
    assert two.warm


def test_what_earlier_runs_printed_does_not_pile_up(tmp_path: Path) -> None:
    file = OutputFile(tmp_path / "out")
    for turn in range(4):
        file.mark()
        with open(file.path, "ab") as out:
            out.write(b"%d" % turn * (KEPT_BYTES + 5))
        assert file.text() == "[5 bytes dropped]\n" + str(turn) * KEPT_BYTES
        assert file.size == KEPT_BYTES + 5


def test_what_is_printed_between_two_runs_is_told_of_the_next(tmp_path: Path) -> None:
    """By a thread, say, or a process that a rank has started: whose it is nobody knows, and nothing is to be lost."""
    file = OutputFile(tmp_path / "out")
    for turn, late in enumerate(("", "late of 0\n", "late of 1\n")):
        file.mark()
        with open(file.path, "a") as out:
            out.write(f"turn {turn}\n")
        assert file.text() == f"{late}turn {turn}\n"
        with open(file.path, "a") as out:
            out.write(f"late of {turn}\n")


def test_text_that_is_no_utf8(two: World) -> None:
    def body() -> None:
        os.write(1, b"\xff\xfe ok")
        print("\udcff")

    assert two.run(body).ranks[0].stdout == "\\xff\\xfe ok\\udcff\n"


def test_a_body_that_closes_its_streams(two: World) -> None:
    def body() -> None:
        sys.stdout.close()
        sys.stderr.close()

    assert two.run(body).ok
    assert [rank.stdout for rank in two.run(print, "again").ranks] == ["again\n"] * 2


def test_nobody_waits_for_input(two: World) -> None:
    assert two.run(lambda: sys.stdin.read()).unwrap() == ["", ""]


def test_streaming_shows_lines_after_their_rank(capsys: pytest.CaptureFixture[str]) -> None:
    def body() -> None:
        print("whole")
        if dist.get_rank() == 0:
            print("half", end="")

    with World(2, stream=True) as world:
        world.run(body)
        first = capsys.readouterr().out
        world.run(print, "next")
    assert sorted(first.splitlines()) == ["[rank 0] half", "[rank 0] whole", "[rank 1] whole"]
    assert sorted(capsys.readouterr().out.splitlines()) == ["[rank 0] next", "[rank 1] next"]
