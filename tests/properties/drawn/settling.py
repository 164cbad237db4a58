"""What becomes of a drawn program, told by a few lines instead of real ranks: whether all its calls find their like.

A mistake that the calls of the others cannot tell apart from what should have been done is none: two equal calls that
are swapped, say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.properties.drawn.mistakes import LOSSES, OTHERS, How, Mistake
from tests.properties.drawn.programs import OPS, ROOTED, Call, Message, Program, Statement

__all__ = ["REDUCING", "SHAPED", "Deed", "comes_right", "deeds"]

REDUCING = frozenset({"all_reduce", "reduce", "reduce_scatter"})
OBJECTS = frozenset({"all_gather_object", "broadcast_object_list", "gather_object"})
SHAPED = frozenset(OPS) - OBJECTS - {"barrier"}
_FROM_ROOT = frozenset({"broadcast", "scatter", "broadcast_object_list"})


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that one rank does: `where` it meets others, who these are, and `what` they must agree on.

    `waits` says whether it goes on only when they have come; `eager` for whom of them alone a backend may have it wait.
    """

    where: tuple[object, ...]
    members: tuple[int, ...]
    what: tuple[object, ...]
    waits: bool
    eager: tuple[int, ...]


def deeds(program: Program, mistake: Mistake | None, rank: int) -> list[Deed]:
    """All that `rank` does, in order."""
    return [deed for statement in _statements(program, mistake, rank) if (deed := _deed(program, statement, rank))]


def comes_right(program: Program, mistake: Mistake | None, *, eager: bool) -> bool:
    """Whether all ranks come to their end, and everything that was done has met its like."""
    if mistake is not None and mistake.how in {*LOSSES, How.LEAK, How.HAZARD} - {How.RETURN}:
        return False
    todo = [deeds(program, mistake, rank) for rank in range(program.ranks)]
    done = [0] * program.ranks  # how many of them it has begun
    posted: dict[tuple[tuple[object, ...], int], list[Deed]] = {}
    met: dict[tuple[tuple[object, ...], int], int] = {}  # how often a rank has come to a place

    def free(rank: int) -> bool:
        if done[rank] == 0:
            return True
        last = todo[rank][done[rank] - 1]
        awaited = last.eager if eager else last.members
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


def _statements(program: Program, mistake: Mistake | None, rank: int) -> Iterator[Statement]:
    held_back: Statement | None = None
    for visit in program.visits():
        struck = mistake is not None and mistake.strikes(program, visit.place, visit.round, rank)
        if mistake is None or not struck:
            if program.concerns(visit.statement, rank):
                yield visit.statement
            if held_back is not None:
                yield held_back
                held_back = None
        elif mistake.how in LOSSES:
            return
        elif mistake.how is How.SWAP:
            held_back = visit.statement
        elif mistake.how is How.EXTRA:
            assert mistake.other is not None
            yield replace(mistake.other)
            if program.concerns(visit.statement, rank):
                yield visit.statement
        elif mistake.how in OTHERS:
            assert mistake.other is not None
            yield mistake.other
        elif mistake.how not in (How.MISSING, How.UNSENT):
            yield visit.statement


def _deed(program: Program, statement: Statement, rank: int) -> Deed | None:
    if isinstance(statement, Message):
        ends = (statement.source, statement.target)
        return Deed((*ends, statement.tag), ends, (statement.size,), True, () if rank == statement.source else ends)
    part = program.families[statement.family].of(rank)
    return Deed(
        (statement.family, part),
        part,
        contract(statement, part),
        not statement.held,
        _data_comes_from(statement, part, rank),
    )


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
