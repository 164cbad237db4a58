"""Thousands of calls leave nothing: no files, descriptors, segments or memory."""

from __future__ import annotations

import gc
import os
import pathlib
import sys
from typing import Any

import pytest

import rankdrill
from rankdrill.gathers import all_gather_list, all_gather_object, all_gather_via_filesys, gather_object
from rankdrill.gathers.agreement.channel import LINE_VARIABLE
from tests.gathers.attempts import TIMEOUT_S, left_in_shared_memory

CALLS = {"local": 2_500, "gloo": 1_000}  # by line; over gloo a call takes three times as long
LONG = 4  # times as many, for memory that only C++ could tell of
WARM = 1_000  # until what is remembered of calls, to know them again, has filled
BLOCKS_A_CALL = 0.5  # of Python's memory; what leaks with every call leaks at least one
LARGE = bytes(20_000)


def resident_bytes() -> int:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def held() -> tuple[int, int, list[str]]:
    gc.collect()
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), left_in_shared_memory([os.getpid()])


def call(turn: int, rank: int, directory: str) -> None:
    received: list[Any] = [None, None]
    if turn % 50 == 0:
        all_gather_via_filesys(turn, directory, timeout=TIMEOUT_S)
    elif turn % 10 == 1:
        all_gather_object(received, LARGE, timeout=TIMEOUT_S)
    elif turn % 10 == 2:
        all_gather_list(turn, timeout=TIMEOUT_S)
    elif turn % 10 == 3:
        gather_object(turn, received if rank == 0 else None, timeout=TIMEOUT_S)
    else:
        all_gather_object(received, {"turn": turn}, timeout=TIMEOUT_S)


@pytest.mark.parametrize("times", [1, pytest.param(LONG, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("line", ["local", pytest.param("gloo", marks=pytest.mark.nightly)])
def test_many_calls_leave_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, line: str, times: int
) -> None:
    count = CALLS[line] * times
    monkeypatch.setenv(LINE_VARIABLE, line)

    def body(rank: int) -> tuple[Any, Any, float, int]:
        for turn in range(WARM):
            call(turn, rank, str(tmp_path))
        before, memory, blocks = held(), resident_bytes(), [sys.getallocatedblocks()]
        for turn in range(count):
            call(turn, rank, str(tmp_path))
            if turn in (count // 2 - 1, count - 1):
                after = held()
                blocks.append(sys.getallocatedblocks())
        # What is made once, and then kept, is made in one half; what leaks with every call leaks in both.
        return before, after, resident_bytes() / memory, min(blocks[1] - blocks[0], blocks[2] - blocks[1])

    with rankdrill.World(2) as world:
        ranks = world.run(lambda: body(int(os.environ["RANK"])), deadline=300).unwrap()
    for before, after, growth, blocks in ranks:
        assert before == after
        assert after[2] == []
        assert growth < 1.01
        assert blocks < count / 2 * BLOCKS_A_CALL
    assert list(tmp_path.iterdir()) == []
