"""All ranks' sequences of calls as one program: what they do together is said once, and what repeats is a loop.

Lines matter to a diagnosis: calls that ranks made from one line are made from one line again, where they can be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

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

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(rank for rank, _ in self.calls)

    @property
    def issued(self) -> bool:
        """Whether it is a message whose handle somebody keeps."""
        return all(call.via in NOT_WAITING for _, call in self.calls)

    @property
    def waited(self) -> bool:
        """Whether it is waited for in the end."""
        return all(call.waits for _, call in self.calls)


@dataclass(frozen=True)
class Block:
    """Lines that are gone through so many times."""

    times: int
    lines: tuple[Line, ...]


def merged(calls: Mapping[int, Sequence[Call]], *, first: Collection[int] = ()) -> list[Line]:
    """Ranks' `calls` laid beside each other: where they made the same one, from the same line, is one line.

    Where ranks go on differently, lines of the ranks `first` come first those of the others.
    """
    alike: dict[tuple[Call, ...], list[int]] = {}
    for rank in sorted(calls):
        alike.setdefault(tuple(calls[rank]), []).append(rank)
    rows: list[tuple[object, dict[int, Call]]] = []
    # Those that most ranks agree in first: the others are laid beside them.
    for its, ranks in sorted(alike.items(), key=lambda each: -len(each[1])):
        rows = _laid_beside(rows, its, ranks, leads=set(ranks) <= set(first))
    return [Line(tuple(sorted(by_rank.items(), key=lambda each: each[0]))) for _, by_rank in rows]


def _laid_beside(
    rows: list[tuple[object, dict[int, Call]]], calls: Sequence[Call], ranks: Sequence[int], *, leads: bool
) -> list[tuple[object, dict[int, Call]]]:
    made: list[tuple[object, dict[int, Call]]] = []
    places = [place for place, _ in rows]
    mine = list(map(_place, calls))
    for how, first, last, begin, end in _compared(places, mine):
        if how == "equal":
            for (place, others), call in zip(rows[first:last], calls[begin:end], strict=True):
                made.append((place, others | dict.fromkeys(ranks, call)))
            continue
        theirs, ours = rows[first:last], [(_place(call), dict.fromkeys(ranks, call)) for call in calls[begin:end]]
        made += [*ours, *theirs] if leads else [*theirs, *ours]
    return made


def _compared(one: Sequence[object], other: Sequence[object]) -> Iterator[tuple[str, int, int, int, int]]:
    """How `one` becomes `other`, as `SequenceMatcher` says it, to which thousands of equal lines are a burden."""
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    if same:
        yield "equal", 0, same, 0, same
    for how, *places in SequenceMatcher(None, one[same:], other[same:], autojunk=False).get_opcodes():
        first, last, begin, end = (place + same for place in places)
        yield how, first, last, begin, end


def _place(call: Call) -> object:
    """What two ranks have in common that make one call from one line; where no line is known, the call itself."""
    return (call.op, call.via, call.site, bool(call.key)) if call.site else call


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
