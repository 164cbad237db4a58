"""Payloads in a line: sizes of what is large, and nothing that takes long or raises."""

from __future__ import annotations

import numpy
import pytest
import torch

from rankdrill.conformance.brief import MOST_CHARACTERS, brief


class Shy:
    def __repr__(self) -> str:
        raise RuntimeError("not today")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"turn": 1, "raw": b"ab"}, "{'raw': b'ab', 'turn': 1}"),
        (b"x" * (1 << 20), "<1,048,576 bytes, b'xxxxxxxxxxxxxxxx'…>"),
        ([torch.zeros(3, 4)], "[<Tensor float32[3, 4]>]"),
        (torch.nn.Parameter(torch.zeros(2)), "<Parameter float32[2]>"),
        (numpy.zeros((2, 2), "f4"), "<ndarray float32[2, 2]>"),
        ("one\ntwo", r"'one\ntwo'"),
        (None, "None"),
    ],
)
def test_what_is_told(value: object, told: str) -> None:
    assert brief(value) == told


def test_it_is_a_line_of_bounded_length_whatever_it_is_given() -> None:
    for value in ({str(key): "y" * 500 for key in range(50)}, [[[[[["deep"] * 9] * 9] * 9] * 9] * 9], "z" * 10_000):
        told = brief(value)
        assert len(told) <= MOST_CHARACTERS
        assert "\n" not in told


def test_one_that_cannot_show_itself_is_its_type() -> None:
    assert brief(Shy()).startswith("<Shy")
