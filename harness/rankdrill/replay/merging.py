"""All ranks' sequences of calls as one program: what they do together is said once, and what repeats is a loop.

Lines matter to a diagnosis: calls that ranks made from one line are made from one line again, where they can be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rankdrill.replay.aligning import Row, laid_beside
from rankdrill.replay.score import Call

__all__ = ["NOT_WAITING", "Block", "Line", "in_blocks", "merged"]

LONGEST_BLOCK = 64  # lines of one turn of a loop
LEAST_TIMES = 3
NOT_WAITING = frozenset({"isend", "irecv", "batch_isend_irecv"})
"""torch's functions that issue a message and leave the waiting to who calls them."""


@dataclass(frozen=True)
class Line:
    """One line of the program: which ranks make it, each with its own arguments."""

    calls: tuple[tuple[int, Call], ...]
    instead: bool = False
    """Whether it is made in the place of the line before it, by other ranks."""

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(rank for rank, _ in self.calls)

    @property
    def issued(self) -> bool:
        """Whether it is a message whose handle somebody keeps."""
        return all(call.via in NOT_WAITING for _, call in self.calls)

    @property
    def touched(self) -> bool:
        """Whether somebody touches what it works on while it does."""
        return any(call.touched for _, call in self.calls)

    @property
    def waited(self) -> bool:
        """Whether it is waited for in the end."""
        return all(call.waits for _, call in self.calls)


@dataclass(frozen=True)
class Block:
    """Lines that are gone through so many times."""

    times: int
    lines: tuple[Line, ...]


def merged(calls: Mapping[int, Sequence[Call]], *, first: Collection[int] = (), by_number: bool = False) -> list[Line]:
    """Ranks' `calls` laid beside each other: where they made the same one, from the same line, is one line.

    Where ranks go on differently, lines of the ranks `first` come first those of the others. With `by_number` groups
    count the calls: what ranks made as one call of a group, from other lines, is one `instead` of the other.
    """
    alike: dict[tuple[Call, ...], list[int]] = {}
    for rank in sorted(calls):
        alike.setdefault(tuple(calls[rank]), []).append(rank)
    rows: list[Row] = []
    # Those that most ranks agree in first: the others are laid beside them.
    for its, ranks in sorted(alike.items(), key=lambda each: -len(each[1])):
        mine = [Row.of(call, ranks) for call in its]
        rows = laid_beside(rows, mine, leads=set(ranks) <= set(first), by_number=by_number)
    return [line for row in rows for line in _lines(row)]


def _lines(row: Row) -> Iterator[Line]:
    """What ranks made in the place of each other, those of most ranks last: they are what is usual."""
    ways = sorted(row.ways.values(), key=len)
    for at, by_rank in enumerate(ways):
        yield Line(tuple(sorted(by_rank.items(), key=lambda each: each[0])), instead=at > 0)


def in_blocks(lines: Sequence[Line]) -> list[Block]:
    """`lines` as blocks, of which those that come several times in a row are one."""
    blocks: list[Block] = []
    at = 0
    while at < len(lines):
        length, times = _longest_loop(lines, at)
        block = tuple(lines[at : at + length])
        if times == 1 and blocks and blocks[-1].times == 1:
            blocks[-1] = Block(1, (*blocks[-1].lines, *block))
        else:
            blocks.append(Block(times, block))
        at += length * times
    return blocks


def _longest_loop(lines: Sequence[Line], at: int) -> tuple[int, int]:
    """The length of a block that begins `at`, and how often it comes, for which most lines are said at once."""
    best = 1, 1
    for length in range(1, min(LONGEST_BLOCK, (len(lines) - at) // LEAST_TIMES) + 1):
        times = 1
        while lines[at + times * length : at + (times + 1) * length] == lines[at : at + length]:
            times += 1
        if times >= LEAST_TIMES and (times - 1) * length > (best[1] - 1) * best[0]:
            best = length, times
    return best
