"""What is shown of a dump of C frames: a line each, whatever C++ spells out."""

from __future__ import annotations

import pytest

from rankdrill.worlds.processes.watching.native import MOST_LETTERS, frames_in

TYPES = "std::basic_string<char, std::char_traits<char>, std::allocator<char> >, pybind11::arg_v, pybind11::arg_v"


@pytest.mark.parametrize(
    ("frame", "shown"),
    [
        ("nanosleep (libc.so.6)", "nanosleep (libc.so.6)"),
        ("<module> (train.py:4)", "<module> (train.py:4)"),
        ("c10d::Store::get(std::string const&) (libtorch.so)", "c10d::Store::get(std::string const&) (libtorch.so)"),
        (f"pybind11::dispatch<{TYPES}>({TYPES})::_FUN (a.so)", "pybind11::dispatch… (a.so)"),
        (f"c10d::wait(anonymous namespace)::{{{TYPES}#1}} (b.so)", "c10d::wait… (b.so)"),
        (f"<{TYPES}>::call (c.so)", f"<{TYPES}"[: MOST_LETTERS - 4] + "… (c.so)"),
    ],
)
def test_a_frame_is_told_by_its_name(frame: str, shown: str) -> None:
    dump = f'Process 1: train\nThread 1 (idle): "MainThread"\n    {frame}\n'
    assert [*frames_in(dump)] == ['Thread 1 (idle): "MainThread"', f"    {shown}"]
