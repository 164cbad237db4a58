"""The tables in which the server's files hold flight recorders: back to what each rank had recorded.

torch's analyzer has made them of the calls that had not ended: of each, which members have come, and who came to
another one instead. Types and lines are not in them, and what had ended is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rankdrill.explain.flight.columns import MOST_RANKS

__all__ = ["Active", "active_in", "as_dumps"]

MOST_ROWS = 20_000
MOST_CHARACTERS = 16 << 20  # of a row
_SIZES = r"\[(?:\[[\d, ]*\](?:, )?)*\]"
_COLUMN = re.compile(r" {2,}")
_COLUMNS = 13  # and behind them those that are empty as a rule
_SET = re.compile(r"\{\d{1,7}(?:, \d{1,7})*\}")
_OTHER = re.compile(
    r"[{ ](\d{1,7}): Collective\([^\n]{0,1000}?"
    rf"collective_name='([^'\n]{{0,500}})', input_sizes=({_SIZES}), output_sizes=({_SIZES})"
)
_NUMBERS = (0, 3, 4, 5)
_STATES = ("scheduled", "started", "completed")


@dataclass(frozen=True)
class Active:
    """A call of a group that had not ended: its `members`, who is `missing`, and what `others` are in instead."""

    group: str
    desc: str
    seq: int
    record: int
    name: str
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    members: tuple[int, ...]
    state: str
    missing: frozenset[int]
    others: Mapping[int, tuple[str, tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]]

    @property
    def key(self) -> tuple[str, tuple[int, ...], int, str]:
        """What it is known by at another moment."""
        return self.group, self.members, self.seq, self.name


def active_in(text: str) -> list[Active]:
    """The calls that the tables in `text` have."""
    return list(islice(_rows(text), MOST_ROWS))


def _rows(text: str) -> Iterator[Active]:
    inside = False
    for line in text.splitlines():
        if line.startswith(("--- ", "=== ")):
            inside = line == "--- Collectives ---"
        elif inside and len(line) < MOST_CHARACTERS and (row := _active(_COLUMN.split(line.strip()))) is not None:
            yield row


def _active(columns: Sequence[str]) -> Active | None:
    """The row that these `columns` are; None for the heading, and for what is no row."""
    if len(columns) < _COLUMNS or not all(columns[at].isdecimal() and len(columns[at]) < 18 for at in _NUMBERS):
        return None
    _, group, _, seq, _, record, desc, name, inputs, outputs, members, state, *rest = columns
    missing = next((each for each in rest if _SET.fullmatch(each)), "")
    others = {int(rank): (other, _sizes(one), _sizes(two)) for rank, other, one, two in _OTHER.findall("  ".join(rest))}
    return Active(
        group,
        desc.removeprefix(f"{group}:"),
        int(seq),
        int(record),
        name,
        _sizes(inputs),
        _sizes(outputs),
        _ranks(members),
        state if state in _STATES else _STATES[0],
        frozenset(_ranks(missing)),
        others,
    )


def _sizes(text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, re.findall(r"\d{1,18}", one))) for one in re.findall(r"\[([\d, ]*)\]", text[1:-1]))


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(rank) for rank in re.findall(r"\d{1,7}", text) if int(rank) < MOST_RANKS}))


def as_dumps(rows: Sequence[Active], since_ns: Mapping[tuple[str, tuple[int, ...], int, str], int]) -> dict[int, Any]:
    """By rank a dump that says what `rows` say; `since_ns` is since when each call was there."""
    dumps: dict[int, Any] = {}
    for row in rows:
        for rank in row.members:
            dump = dumps.setdefault(rank, {"version": "", "pg_config": {}, "entries": []})
            dump["pg_config"][row.group] = {"name": row.group, "desc": row.desc, "ranks": list(row.members)}
            if rank in row.missing:
                continue
            name, inputs, outputs = row.others.get(rank, (row.name, row.inputs, row.outputs))
            dump["entries"].append(
                {
                    "process_group": (row.group, row.desc),
                    "profiling_name": name,
                    "collective_seq_id": row.seq,
                    "record_id": row.record + 1,  # none is the first: what has ended is not there
                    "time_created_ns": since_ns[row.key],
                    "state": row.state,
                    "input_sizes": [list(sizes) for sizes in inputs],
                    "output_sizes": [list(sizes) for sizes in outputs],
                }
            )
    for dump in dumps.values():
        dump["entries"].sort(key=lambda entry: entry["record_id"])
    return dumps
