"""Payloads are written as Python that makes their like, and Hypothesis prints them so."""

from __future__ import annotations

import array
import ast
import asyncio
import collections
import datetime
import decimal
import fractions
import functools
import ipaddress
import json
import math
import operator
import pathlib
import pickle
import posixpath
import random
import re
import subprocess
import types
import uuid
from typing import Any

import numpy
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankdrill_strategies import (
    arrays,
    as_code,
    big_payloads,
    everyday,
    explain_difference,
    picklables,
    specimens,
    tensors,
)
from rankdrill_strategies.everyday.deep import DEEP

_SCOPE = {
    each.__name__: each
    for each in (
        *(array, asyncio, collections, datetime, decimal, fractions, functools, ipaddress, json, math, numpy, operator),
        *(pathlib, pickle, posixpath, random, re, subprocess, torch, types, uuid),
    )
} | {"specimens": specimens}
BIG = 900  # bytes of a pickle; each is at most four characters of its code, and that many characters are written
_TABLES = [name for name in everyday.__all__ if type(getattr(everyday, name)) is tuple]


def _made_of(code: str) -> Any:
    return eval(code, dict(_SCOPE))


def _can_be_pasted(code: str) -> bool:
    """Whether it is Python: what is both big and of no better form than a pickle is shown as `<...>`."""
    try:
        ast.parse(code)
    except SyntaxError:
        return False
    return True


def _knot() -> list[Any]:
    knot = [None]
    knot.append(knot)  # type: ignore[arg-type]  # that is what a knot is
    return knot


def _twice(part: Any) -> list[Any]:
    return [part, part]


WRITTEN: list[tuple[Any, str]] = [
    (2**63, "2**63"),
    (-(2**63) - 1, "-2**63 - 1"),
    (10**309, "10**309"),
    ([math.nan, -0.0], "[float('nan'), -0.0]"),
    ("a" * 256, "'a' * 256"),
    (bytes(range(256)) * 16, "(bytes(range(256)) * 16)[:4096]"),
    (_twice([]), "[(x := []), x]"),
    (_twice("a"), "['a', 'a']"),
    (_knot(), "(x := [], x.extend([None, x]))[0]"),
    ([0] * 255, "[0] * 255"),
    (DEEP[0](), "functools.reduce(lambda inner, _: [inner], range(70), None)"),
    (specimens.Record(None, (1,)), "specimens.Record(payload=(1,))"),
    (specimens.Reduced({}), "specimens.Reduced(payload={})"),
    (specimens.Rights.READ | specimens.Rights.RUN, "specimens.Rights(5)"),
    (FileNotFoundError(2, "no", "a"), "FileNotFoundError(2, 'no', 'a')"),
    (
        datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
        "datetime.datetime(2024, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)",
    ),
    (torch.arange(6.0)[2:4], "torch.arange(6.0)[2:4]"),
    (torch.arange(6).reshape(2, 3).t(), "torch.arange(6).reshape(2, 3).t()"),
    (torch.nn.Parameter(torch.tensor([0.5])), "torch.nn.Parameter(torch.tensor([0.5]))"),
    (torch.Size([2]), "torch.Size([2])"),
    (numpy.arange(3)[::-1], "numpy.array([0, 1, 2])[::-1]"),
    (numpy.arange(6)[2:4], "numpy.arange(6)[2:4]"),
    (numpy.float64(0.5), "numpy.float64(0.5)"),
    (numpy.zeros((), "|V0"), "numpy.zeros((), dtype='|V0')"),
]


@pytest.mark.parametrize(("obj", "code"), WRITTEN, ids=[code for _, code in WRITTEN])
def test_it_is_written_as_a_person_would(obj: Any, code: str) -> None:
    assert as_code(obj) == code
    assert explain_difference(obj, _made_of(code)) is None


@pytest.mark.parametrize("table", _TABLES)
def test_what_is_ready_made_can_be_pasted(table: str) -> None:
    for make in getattr(everyday, table):
        assert explain_difference(make(), _made_of(as_code(make()))) is None


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(picklables())
def test_whatever_is_drawn_can_be_pasted(payload: Any) -> None:
    code = as_code(payload)
    if _can_be_pasted(code) or len(pickle.dumps(payload, 5)) < BIG:
        assert explain_difference(payload, _made_of(code)) is None


def test_a_part_that_is_too_big_to_be_written_makes_the_whole_no_python() -> None:
    dice = numpy.array([(0.5, random.Random(1))], dtype=[("x", "<f8"), ("what", "O")])
    code = as_code([1, dice, "a" * 300])
    assert code.startswith("[1, <array(")
    assert code.endswith(">, 'a' * 300]")
    assert not _can_be_pasted(code)


@pytest.mark.parametrize("stride", ["tensor", "array"])
def test_a_view_is_written_as_it_lies(stride: str) -> None:
    if stride == "tensor":
        made = _made_of(as_code(torch.arange(24).reshape(2, 3, 4).permute(1, 2, 0)))
        assert (made.stride(), made.storage_offset()) == ((4, 1, 12), 0)
    else:
        assert _made_of(as_code(numpy.arange(6)[1::2])).strides == (16,)


def test_what_cannot_be_written_is_shown_all_the_same() -> None:
    class Mute:
        def __reduce_ex__(self, protocol: Any) -> Any:
            raise RuntimeError("no")

    assert "Mute" in as_code(Mute())


def _printed(strategy: st.SearchStrategy[Any]) -> str:
    @settings(
        max_examples=1000,
        database=None,
        derandomize=True,
        print_blob=False,
        deadline=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(payload=strategy)
    def fails(payload: Any) -> None:
        raise AssertionError

    with pytest.raises(AssertionError) as caught:
        fails()
    return "\n".join(caught.value.__notes__)


def _is_a_list_in_itself(payload: Any) -> bool:
    return type(payload) is list and any(part is payload for part in payload)


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        (picklables(), "payload=None"),
        pytest.param(picklables().filter(_is_a_list_in_itself), "x.extend([", marks=pytest.mark.nightly),
        (picklables().filter(lambda payload: type(payload) is specimens.Record), "specimens.Record("),
        (tensors(max_dims=0), "torch.tensor(0.0)"),
        (arrays(max_dims=0, dtypes=["f4"]), "numpy.array(0.0, dtype='float32')"),
        (big_payloads(), "(bytes(range(256)) * 4)[:1024]"),
    ],
    ids=["none", "knot", "object", "tensor", "array", "big"],
)
def test_hypothesis_prints_what_can_be_pasted(strategy: st.SearchStrategy[Any], said: str) -> None:
    printed = _printed(strategy)
    assert said in printed
    assert "lambda" not in printed
    assert not re.search(r"\b_\w+\(", printed), "a function of ours"
