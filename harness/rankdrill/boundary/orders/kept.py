"""What a rank writes into files of its own, and into stores: a part of what it gives away, which a copy writes nowhere.

Of what was pickled into a file the objects are compared, of text its numbers, or else its lines in any order: which of
two lines comes first is seldom meant. Other bytes say too little.
"""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rankdrill.boundary.gate import Call
from rankdrill.boundary.orders.alike import alike
from rankdrill.step import Kind

__all__ = ["NOWHERE", "Kept", "as_bytes", "is_begun", "is_pickled", "is_set", "is_written", "told_apart"]

NOWHERE = os.devnull
"""Where a copy writes to."""
_ANEW = frozenset({"w", "wb", "wt"})
_PICKLES = frozenset({"dump", "save"})
_NUMBER = re.compile(r"([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)")


@dataclass(frozen=True)
class Kept:
    """One write into the file at `path`, or of the key of that name: its bytes, and what was pickled since the last."""

    path: str
    data: bytes
    objects: tuple[bytes, ...] = ()

    @property
    def name(self) -> str:
        return os.path.basename(self.path)


def is_begun(call: Call) -> bool:
    """Whether a file is opened to be written from its beginning. One that is added to, as logs are, says little."""
    return call.step.kind is Kind.FILE and call.step.op == "open" and call.step.fingerprint in _ANEW


def is_written(call: Call) -> bool:
    return call.step.kind is Kind.FILE and call.step.op == "write" and "data" in call.args


def is_set(call: Call) -> bool:
    """Whether one key of a store is given a value, and nothing is asked."""
    return call.step.kind is Kind.STORE and call.step.op == "set" and len(call.args.get("given", ())) == 1


def as_bytes(value: str | bytes) -> bytes:
    return value.encode("utf-8", "backslashreplace") if isinstance(value, str) else bytes(value)


def is_pickled(call: Call) -> bool:
    return call.step.kind is Kind.OBJECT and call.step.op in _PICKLES


def told_apart(was: Kept, now: Kept) -> bool:
    """Whether the two say different things, as far as that can be known."""
    if was.data == now.data:
        return False
    if was.objects or now.objects:
        return len(was.objects) == len(now.objects) and not _same_objects(was.objects, now.objects)
    try:
        return not _same_text(was.data.decode(), now.data.decode())
    except UnicodeDecodeError:
        return False


def _same_objects(was: Sequence[bytes], now: Sequence[bytes]) -> bool:
    try:
        return all(alike(pickle.loads(one), pickle.loads(other)) for one, other in zip(was, now, strict=True))
    except Exception:  # of what cannot be loaded nobody can say
        return True


def _same_text(was: str, now: str) -> bool:
    try:
        return alike(json.loads(was, parse_int=float), json.loads(now, parse_int=float))
    except ValueError:
        pass
    one, other = was.splitlines(), now.splitlines()
    return sorted(one) == sorted(other) or alike(_in_numbers(one), _in_numbers(other))


def _in_numbers(lines: Sequence[str]) -> list[list[Any]]:
    """Each line, with numbers for what is written as such."""
    split = [_NUMBER.split(line) for line in lines]
    return [[float(part) if at % 2 else part for at, part in enumerate(parts)] for parts in split]
