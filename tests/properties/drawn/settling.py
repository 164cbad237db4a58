"""What becomes of a drawn program, told by a few lines instead of real ranks: whether all its calls find their like.

A mistake that the calls of the others cannot tell apart from what should have been done is none: two equal calls that
are swapped, say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.properties.drawn.mistakes import LOSSES, OF_KEYS, OTHERS, How, Mistake
from tests.properties.drawn.programs import (
    OPS,
    ROOTED,
    Call,
    Collect,
    Exchange,
    Key,
    Message,
    Program,
    Statement,
    Visit,
)

__all__ = ["REDUCING", "SHAPED", "Deed", "comes_right", "deeds"]

REDUCING = frozenset({"all_reduce", "reduce", "reduce_scatter"})
OBJECTS = frozenset({"all_gather_object", "broadcast_object_list", "gather_object"})
SHAPED = frozenset(OPS) - OBJECTS - {"barrier"}
_FROM_ROOT = frozenset({"broadcast", "scatter", "broadcast_object_list"})


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that one rank does: `where` it meets others, who these are, and `what` they must agree on.

    `waits` says whether it goes on only when they have come; `eager` for whom of them alone a backend may have it wait,
    or, if it is `certain`, has.
    """

    where: tuple[object, ...]
    members: tuple[int, ...]
    what: tuple[object, ...]
    waits: bool
    eager: tuple[int, ...]
    certain: bool = False


def deeds(program: Program, mistake: Mistake | None, rank: int) -> list[Deed]:
    """All that `rank` does, in order."""
    return [deed for done in _done(program, mistake, rank) for deed in _deeds(program, done, rank)]


def comes_right(program: Program, mistake: Mistake | None, *, eager: bool) -> bool:
    """Whether all ranks come to their end, and everything that was done has met its like."""
    if mistake is not None and mistake.how in {*LOSSES, How.LEAK, How.HAZARD, How.ARRIVAL} - {How.RETURN}:
        return False
    todo = [deeds(program, mistake, rank) for rank in range(program.ranks)]
    done = [0] * program.ranks  # how many of them it has begun
    posted: dict[tuple[tuple[object, ...], int], list[Deed]] = {}
    met: dict[tuple[tuple[object, ...], int], int] = {}  # how often a rank has come to a place

    def free(rank: int) -> bool:
        if done[rank] == 0:
            return True
        last = todo[rank][done[rank] - 1]
        awaited = last.eager if eager or last.certain else last.members
        return not last.waits or all(met.get((last.where, one), 0) >= met[last.where, rank] for one in awaited)

    went = True
    while went:
        went = False
        for rank in range(program.ranks):
            while done[rank] < len(todo[rank]) and free(rank):
                deed = todo[rank][done[rank]]
                number = met[deed.where, rank] = met.get((deed.where, rank), 0) + 1
                posted.setdefault((deed.where, number), []).append(deed)
                done[rank] += 1
                went = True
    if any(done[rank] < len(todo[rank]) or not free(rank) for rank in range(program.ranks)):
        return False
    return all(
        len(found) == len(found[0].members) and len({each.what for each in found}) == 1 for found in posted.values()
    )


@dataclass(frozen=True, slots=True)
class _Done:
    """What a rank does at a visit: the statement, or what it does in its place; `wrong` is how, if it does."""

    visit: Visit
    statement: Statement
    wrong: How | None = None


def _done(program: Program, mistake: Mistake | None, rank: int) -> Iterator[_Done]:
    held_back: _Done | None = None
    for visit in program.visits():
        struck = mistake is not None and mistake.strikes(program, visit.place, visit.round, rank)
        usual = _Done(visit, visit.statement)
        if mistake is None or not struck:
            if program.concerns(visit.statement, rank):
                yield usual
            if held_back is not None:
                yield held_back
                held_back = None
        elif mistake.how in LOSSES:
            return
        elif mistake.how is How.SWAP:
            held_back = usual
        elif mistake.how is How.EXTRA:
            assert mistake.other is not None
            yield _Done(visit, replace(mistake.other))
            if program.concerns(visit.statement, rank):
                yield usual
        elif isinstance(visit.statement, Key | Exchange | Collect):
            yield _Done(visit, visit.statement, mistake.how)
        elif mistake.how in OTHERS:
            assert mistake.other is not None
            yield _Done(visit, mistake.other)
        elif mistake.how not in (How.MISSING, How.UNSENT):
            yield usual


def _deeds(program: Program, done: _Done, rank: int) -> Iterator[Deed]:
    here = (done.visit.place, done.visit.round)
    every = tuple(range(program.ranks))
    match done.statement:
        case Message(source=source, target=target, tag=tag, size=size):
            ends = (source, target)
            yield Deed((*ends, tag), ends, (size,), True, () if rank == source else ends)
        case Key(source=source, targets=targets):
            yield from _of_key(here, source, (source, *targets), rank, done.wrong)
        case Exchange():
            yield from _of_key((*here, rank), rank, every, rank, done.wrong)
            for other in every:
                if other != rank:
                    yield from _of_key((*here, other), other, every, rank, None)
        case Collect(root=root):
            for other in [each for each in every if each != root and rank in (each, root)]:
                wrong = rank != root and done.wrong in (How.UNSENT, How.TAG)
                ends = (other, root)
                if not wrong:
                    yield Deed(("collected", *here, other), ends, (), True, () if rank == other else ends)
        case Call() as call:
            part = program.families[call.family].of(rank)
            waits, data = not call.held, _data_comes_from(call, part, rank)
            yield Deed((call.family, part), part, contract(call, part), waits, data)


def _of_key(
    name: tuple[object, ...], source: int, members: tuple[int, ...], rank: int, wrong: How | None
) -> Iterator[Deed]:
    """That `rank` sets that key, or gets it; another one, or none at all, where something is `wrong`."""
    where = ("another", *name) if wrong in OF_KEYS else ("key", *name)
    if rank != source:
        yield Deed(where, members, (), True, (source,), certain=True)
    elif wrong is not How.UNSET:
        yield Deed(where, members, (), False, (), certain=True)


def _data_comes_from(call: Call, part: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Whose data `rank` needs: who gets the root's needs nobody else's, and who gives the root its own nobody's."""
    if call.op not in ROOTED:
        return part
    root = call.root_in(part)
    if call.op in _FROM_ROOT:
        return () if rank == root else (root,)
    return part if rank == root else ()


def contract(call: Call, part: tuple[int, ...]) -> tuple[object, ...]:
    """What the members of a group must agree on in `call`."""
    tensors = (call.size, call.dtype) if call.op in SHAPED else ()
    root = call.root_in(part) if call.op in ROOTED else None
    return call.op, root, call.reduce_op if call.op in REDUCING else None, *tensors
