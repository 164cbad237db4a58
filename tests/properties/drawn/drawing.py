"""Draws programs and mistakes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import assume
from hypothesis import strategies as st

from tests.properties.drawn.mistakes import LOSSES, OF_KEYS, How, Mistake
from tests.properties.drawn.programs import (
    HELD,
    OPS,
    ROOTED,
    Call,
    Collect,
    Exchange,
    Family,
    Key,
    Loop,
    Message,
    Place,
    Program,
    Statement,
)
from tests.properties.drawn.settling import REDUCING, SHAPED, comes_right

__all__ = ["Drawn", "drawn_programs"]

RANKS = (2, 3, 3, 3, 4, 4, 4, 5, 6)
SIZES = (1, 3, 4, 7)
DTYPES = ("float32", "float32", "float64", "int64")
REDUCE_OPS = ("SUM", "SUM", "MAX", "MIN", "PRODUCT")
MOST_STATEMENTS, MOST_IN_A_LOOP = 6, 4
MOST_ROUNDS = (6, 6, 60)  # most loops are short: of what long ones add, a few tell as much as many


@dataclass(frozen=True, slots=True)
class Drawn:
    """A program, and what is wrong with it; nothing, if it is correct."""

    program: Program
    mistake: Mistake | None


@st.composite
def drawn_programs(draw: st.DrawFn) -> Drawn:
    """A program with one mistake, which shows; or with none."""
    ranks = draw(st.sampled_from(RANKS))
    families = (Family((tuple(range(ranks)),)), *draw(st.lists(_families(ranks), min_size=0, max_size=3)))
    block = draw(st.lists(_statements(ranks, families) | _loops(ranks, families), min_size=1, max_size=MOST_STATEMENTS))
    program = Program(ranks, families, tuple(block))
    how = draw(st.sampled_from([None, None, *How]))
    if how is None:
        return Drawn(program, None)
    mistake = draw(_mistakes(program, how))
    # What depends on whether the backend lets a rank go on before the others have come is not for sure.
    assume(comes_right(program, mistake, eager=True) == comes_right(program, mistake, eager=False))
    return Drawn(program, mistake)


@st.composite
def _families(draw: st.DrawFn, ranks: int) -> Family:
    some = draw(st.permutations(range(ranks)))
    first = draw(st.integers(1, ranks))
    parts = [tuple(sorted(some[:first]))]
    if first < ranks and draw(st.booleans()):
        parts.append(tuple(sorted(some[first:])))
    return Family(tuple(parts))


@st.composite
def _calls(draw: st.DrawFn, families: tuple[Family, ...]) -> Call:
    op = draw(st.sampled_from(OPS))
    return Call(
        op,
        draw(st.integers(0, len(families) - 1)),
        draw(st.sampled_from(SIZES)),
        draw(st.sampled_from(DTYPES)),
        draw(st.sampled_from(REDUCE_OPS)),
        draw(st.integers(0, 5)),
        op in HELD and draw(st.integers(0, 3)) == 0,
    )


@st.composite
def _messages(draw: st.DrawFn, ranks: int) -> Message:
    source, target = draw(st.permutations(range(ranks)))[:2]
    return Message(source, target, draw(st.integers(0, 2)), draw(st.sampled_from(SIZES)), draw(st.booleans()))


@st.composite
def _keys(draw: st.DrawFn, ranks: int) -> Key:
    source, *others = draw(st.permutations(range(ranks)))
    return Key(source, tuple(sorted(others[: draw(st.integers(1, len(others)))])))


@st.composite
def _collected(draw: st.DrawFn, ranks: int) -> Collect:
    return Collect(draw(st.integers(0, ranks - 1)), draw(st.sampled_from(SIZES)))


def _statements(ranks: int, families: tuple[Family, ...]) -> st.SearchStrategy[Statement]:
    calls = (_calls(families),) * 4
    few = (_collected(ranks),) if ranks > 2 else ()  # of two nobody but the other one can send
    return st.one_of(*calls, _messages(ranks), _keys(ranks), st.builds(Exchange), *few)


@st.composite
def _loops(draw: st.DrawFn, ranks: int, families: tuple[Family, ...]) -> Loop:
    body = draw(st.lists(_statements(ranks, families), min_size=1, max_size=MOST_IN_A_LOOP))
    return Loop(draw(st.integers(1, draw(st.sampled_from(MOST_ROUNDS)))), tuple(body))


# --------------------------------------------------------------------------------------------- mistakes


@st.composite
def _mistakes(draw: st.DrawFn, program: Program, how: How) -> Mistake:
    places = [place for place in program.places if _may_strike(program, how, place)]
    assume(places)
    place = draw(st.sampled_from(places))
    statement = program.at(place)
    ranks = [rank for rank in range(program.ranks) if _may_be_whose(rank, program, how, statement)]
    if how is How.SWAP:
        ranks = [rank for rank in ranks if program.concerns(program.at(program.behind(place)), rank)]
    rank = draw(st.sampled_from(ranks))
    other = draw(_otherwise(program, how, statement, rank))
    number = draw(st.integers(0, program.rounds(place) - 1))
    return Mistake(how, rank, place, number, other, draw(st.booleans()))


def _may_be_whose(rank: int, program: Program, how: How, statement: Statement) -> bool:
    """Whether `rank` can make such a mistake there."""
    match statement:
        case _ if how is How.EXTRA:
            return True
        case Key(source=source) if how is How.UNSET:
            return rank == source
        case Collect(root=root) if how not in LOSSES:
            return (rank == root) is (how is How.ARRIVAL)
        case _:
            return program.concerns(statement, rank)


def _may_strike(program: Program, how: How, place: Place) -> bool:
    statement = program.at(place)
    match statement:
        case _ if how in LOSSES or how is How.EXTRA:
            return True
        case Message():
            return how in (How.PEER, How.TAG, How.UNSENT)
        case Key():
            return how in (How.UNSET, How.NAME)
        case Exchange():
            return how in OF_KEYS
        case Collect():
            return how in (How.UNSENT, How.TAG, How.ARRIVAL)
    match how:
        case How.PEER | How.TAG | How.UNSENT | How.ARRIVAL | How.UNSET | How.NAME | How.TURNED:
            return False
        case How.REDUCE_OP:
            return statement.op in REDUCING
        case How.ROOT:
            return statement.op in ROOTED
        case How.DTYPE | How.SIZE:
            return statement.op in SHAPED
        case How.LEAK | How.HAZARD:
            return statement.held
        case How.SWAP:
            behind = program.behind(place)
            if statement.held or behind not in program.places:
                return False
            if behind[0] != place[0] and isinstance(program.block[behind[0]], Loop):
                return False  # it is called as often as the loop goes round
            second = program.at(behind)
            both = isinstance(second, Call) and not second.held
            return both and any(
                program.concerns(statement, rank) and program.concerns(second, rank) for rank in range(program.ranks)
            )
        case _:
            return True


@st.composite
def _otherwise(draw: st.DrawFn, program: Program, how: How, statement: Statement, rank: int) -> Statement | None:
    """What `rank` does instead of `statement`, or on top of it."""
    if how is How.EXTRA:
        mine = [number for number, family in enumerate(program.families) if family.of(rank)]
        return replace(draw(_calls(program.families)), family=draw(st.sampled_from(mine)), held=False)
    if isinstance(statement, Message):
        return draw(_another_message(program, how, statement, rank))
    if not isinstance(statement, Call):
        return None
    match how:
        case How.OP:
            ops = [op for op in (HELD if statement.held else OPS) if op != statement.op]
            return replace(statement, op=draw(st.sampled_from(sorted(ops))))
        case How.REDUCE_OP:
            others = sorted({*REDUCE_OPS} - {statement.reduce_op})
            return replace(statement, reduce_op=draw(st.sampled_from(others)))
        case How.ROOT:
            part = program.families[statement.family].of(rank)
            assume(len(part) > 1)
            return replace(statement, root=statement.root + draw(st.integers(1, len(part) - 1)))
        case How.DTYPE:
            return replace(statement, dtype=draw(st.sampled_from(sorted({*DTYPES} - {statement.dtype}))))
        case How.SIZE:
            return replace(statement, size=draw(st.sampled_from(sorted({*SIZES} - {statement.size}))))
        case How.GROUP:
            mine = [
                number
                for number, family in enumerate(program.families)
                if family.of(rank) and number != statement.family
            ]
            assume(mine)
            return replace(statement, family=draw(st.sampled_from(mine)))
        case _:
            return None


@st.composite
def _another_message(draw: st.DrawFn, program: Program, how: How, message: Message, rank: int) -> Message | None:
    if how is How.TAG:
        return replace(message, tag=message.tag + draw(st.integers(1, 3)))
    if how is How.PEER:
        others = [other for other in range(program.ranks) if other not in (message.source, message.target)]
        assume(others)
        other = draw(st.sampled_from(others))
        return replace(message, target=other) if rank == message.source else replace(message, source=other)
    return None
