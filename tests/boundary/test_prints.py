"""Prints of memory: what they notice of a change, in C and in Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest
import torch

from rankdrill.boundary import prints
from rankdrill.boundary.accesses import Use
from rankdrill.boundary.prints import MOST_READ, prints_of
from rankdrill.boundary.regions import buffers_of
from rankdrill.native import hot

PrintOf = Callable[[int, int], int]
LANES: list[PrintOf] = [prints._print_in_python] + ([] if hot is None else [hot.print_of])


@pytest.mark.parametrize("print_of", LANES)
@pytest.mark.parametrize("size", [1, 7, 8, 31, 32, 33, 100, 4097])
def test_each_byte_of_what_is_small_counts(size: int, print_of: PrintOf) -> None:
    memory = ctypes.create_string_buffer(bytes(each % 251 for each in range(size)), size)
    start = ctypes.addressof(memory)
    before = print_of(start, start + size)
    assert print_of(start, start + size) == before
    for place in range(0, size, max(1, size // 97)):
        was = memory[place]
        memory[place] = bytes([was[0] ^ 1])
        assert print_of(start, start + size) != before, place
        memory[place] = was
    assert print_of(start, start + size) == before


@pytest.mark.parametrize("print_of", LANES)
def test_of_what_is_large_its_ends_count_and_no_gap_is_wide(print_of: PrintOf) -> None:
    size = 40 * MOST_READ
    memory = ctypes.create_string_buffer(size)
    start = ctypes.addressof(memory)
    before = print_of(start, start + size)
    for place in (0, size - 1):
        ctypes.memset(start + place, 1, 1)
        assert print_of(start, start + size) != before, place
        ctypes.memset(start + place, 0, 1)
    wide = size // 200  # bytes, a little more than from one window to the next
    for place in range(0, size - wide, size // 23):
        ctypes.memset(start + place, 1, wide)
        assert print_of(start, start + size) != before, place
        ctypes.memset(start + place, 0, wide)
    assert print_of(start, start + size) == before


@pytest.mark.parametrize("print_of", LANES)
def test_bytes_that_change_places_are_noticed(print_of: PrintOf) -> None:
    one = ctypes.create_string_buffer(bytes(range(64)), 64)
    other = ctypes.create_string_buffer(bytes(range(8, 64)) + bytes(range(8)), 64)
    found = [print_of(ctypes.addressof(each), ctypes.addressof(each) + 64) for each in (one, other)]
    assert found[0] != found[1]


def test_of_each_tensor_what_it_is_to_the_call() -> None:
    given, out = torch.ones(4), [torch.empty(4), torch.empty(4)]
    arguments = {"tensors": [given], "outputs": [out]}
    (read, *written) = prints_of(arguments, buffers_of("all_gather", arguments, 0))
    assert not read.written
    assert [each.written for each in written] == [True, True]
    out[0].fill_(3.0)
    assert [each.change for each in (read, *written)] == [None, None, None]
    given[2] = 2.0
    assert read.change is Use.CHANGE
    out[1].data = torch.zeros(4)
    assert written[1].change is Use.MOVE
    out[0].untyped_storage().resize_(0)
    assert written[0].change is Use.FREE


def test_what_is_read_where_it_is_written_too_may_change() -> None:
    whole = torch.ones(4)
    arguments = {"tensors": whole[:2], "outputs": whole}
    found = prints_of(arguments, buffers_of("_allgather_base", arguments, 0))
    whole.fill_(2.0)
    assert [each.change for each in found] == [None, None]


def test_a_tensor_that_lies_nowhere_has_none() -> None:
    arguments = {"tensors": [torch.empty(4, device="meta"), torch.empty(0)], "outputs": []}
    assert prints_of(arguments, buffers_of("all_gather", arguments, 0)) == ()
