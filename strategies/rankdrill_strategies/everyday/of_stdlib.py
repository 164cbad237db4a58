"""Values of the standard library, points in time, and states of random number generators."""

from __future__ import annotations

import functools
import ipaddress
import math
import operator
import random
import re
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import SimpleNamespace

from rankdrill_strategies import specimens
from rankdrill_strategies.everyday.table import Table, fixed

__all__ = ["STATES", "TIMES", "VALUES"]

VALUES: Table = (
    *fixed(
        *(1j, complex(0.0, -0.0), complex(math.nan, 1), range(3), range(0, 10, 3), range(3, 0, -1), Ellipsis),
        *(NotImplemented, Fraction(1, 3), Decimal("0.1"), Decimal("1.10"), Decimal("NaN"), Decimal("-0"), Path("a/b")),
        *(Decimal("Infinity"), Decimal(10) ** 30, Path("/"), PurePosixPath("a/é"), PureWindowsPath("a\\b"), slice(1)),
        *(slice(None, None, -1), uuid.UUID(int=1), re.compile("a+"), re.compile(b"a", re.DOTALL), list[int]),
        *(ipaddress.ip_address("127.0.0.1"), operator.itemgetter(1), operator.attrgetter("a.b")),
        *(int, len, math.sin, specimens.twice, specimens.Record, specimens.Outer.Inner),
        *(specimens.Colour.RED, specimens.Level.HIGH, specimens.Mode.FAST, specimens.Rights.READ, OSError),
    ),
    lambda: functools.partial(specimens.twice, [1]),
    lambda: specimens.TaggedInt(1),
    lambda: SimpleNamespace(a=1),
    lambda: specimens.Record("a", [1]),
    lambda: specimens.Frozen(1, (2,)),
    lambda: specimens.Outer.make,
    lambda: specimens.Outer.Inner([1]),
    object,
)

TIMES = fixed(
    date(2024, 2, 29),
    datetime(2024, 1, 1),
    datetime(2024, 1, 1, tzinfo=UTC),
    datetime(2024, 1, 1, 12, 30, 15, 123456),
    datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=-8), "PST")),
    datetime(2024, 10, 27, 2, 30, fold=1),
    datetime.min,
    datetime.max,
    time(1, 2, 3, 4),
    time(1, tzinfo=UTC),
    timedelta(seconds=-1),
    timedelta(microseconds=1),
    timedelta.max,
    UTC,
)


def _used(seed: int) -> random.Random:
    """A generator in the middle of a pair of normal numbers, which its state keeps too."""
    generator = random.Random(seed)
    generator.gauss(0, 1)
    return generator


STATES: Table = (
    lambda: random.Random(0),
    lambda: _used(1),
    lambda: random.Random(0).getstate(),
)
