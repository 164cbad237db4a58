"""Groups that overlap and lie within one another: calls on them alternate, and what breaks one disturbs no other."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist

import rankdrill
from rankdrill.conformance import ways
from rankdrill.conformance.ways import Receives
from rankdrill.gathers import get_configs_parallel, get_tensors_parallel
from tests.gathers.all_ways import LARGE, SMALL, WAYS, At, Way, tensor, troubled, way
from tests.gathers.attempts import TIMEOUT_S, Unpicklable, all_alike, attempt
from tests.gathers.failures import no_memory_to_receive

MEMBERS = ([0, 1, 2, 3], [0, 1, 2], [1, 2, 3], [1, 2])
SHORT_S = 2.0
TURNS = 20


def _configs_of_some(value: Any, at: ways.At) -> Any:
    with get_configs_parallel(value, [3, 2], timeout=at.timeout) as seen:
        return seen[::-1]


def _tensors_of_some(value: Any, at: ways.At) -> Any:
    with get_tensors_parallel(value, [3, 2], timeout=at.timeout) as seen:
        return seen[::-1]


# Of the default group, which they do not name, exactly two ranks take part.
OF_SOME = tuple(Way(ways.Way(call.__name__, "", call, Receives.ONE)) for call in (_configs_of_some, _tensors_of_some))


class Groups:
    """The groups of this rank; each with its members by group rank."""

    def __init__(self, directory: str) -> None:
        made = [dist.group.WORLD, *(dist.new_group(members) for members in MEMBERS[1:])]
        self.at = {tuple(members): At(group, directory) for members, group in zip(MEMBERS, made, strict=True)}

    def mine(self) -> Iterator[tuple[tuple[int, ...], At]]:
        for members, at in self.at.items():
            if dist.get_rank() in members:
                yield members, at

    def turn(self, number: int) -> list[Any]:
        """A call on every group, and one between ranks 2 and 3 of the default group; returns what is wrong."""
        wrong = []
        for members, at in self.mine():
            one = WAYS[(5 * number + len(members)) % len(WAYS)]
            wrong += _wrong(one, members, at, number, LARGE if (number + len(members)) % 3 == 0 else SMALL)
            if len(members) == 4 and dist.get_rank() >= 2:
                wrong += _wrong(OF_SOME[number % 2], (2, 3), at, number, LARGE if number % 2 else SMALL)
        return wrong


def _wrong(one: Way, members: tuple[int, ...], at: At, number: int, numbers: int) -> list[Any]:
    marks = [100 * number + rank for rank in members]
    me = members.index(dist.get_rank())
    got = attempt(one, tensor(marks[me], numbers), at)
    return [] if got == one.expected(marks, numbers, me) else [(one.name, members, number, got)]


def test_calls_on_many_groups_in_turn(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    def body() -> Any:
        groups = Groups(str(tmp_path))
        return [wrong for number in range(TURNS) for wrong in groups.turn(number)]

    assert world.run(body).unwrap() == [[]] * 4


def test_a_failure_in_one_group_is_none_in_another(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    def fail_to_encode(at: At) -> Any:
        return attempt(way("all_gather"), troubled(Unpicklable()) if dist.get_rank() == 1 else tensor(0), at)

    def fail_to_receive(at: At) -> Any:
        with no_memory_to_receive(dist.get_rank() == 2):
            return attempt(way("all_gather_object"), tensor(0, LARGE), at)

    def body() -> Any:
        groups, rank, failed = Groups(str(tmp_path)), dist.get_rank(), {}
        wrong = groups.turn(0)
        if rank in (0, 1, 2):
            failed["encode"] = fail_to_encode(groups.at[0, 1, 2])
        wrong += groups.turn(1)
        if rank in (1, 2, 3):
            failed["receive"] = fail_to_receive(groups.at[1, 2, 3])
        wrong += groups.turn(2)
        if rank == 1:
            failed["come"] = attempt(way("gather"), tensor(0), At(groups.at[1, 2].group, "", SHORT_S))
        elif rank >= 2:  # which rank 1 waits for, and which is busy elsewhere
            wrong += _wrong(OF_SOME[0], (2, 3), groups.at[0, 1, 2, 3], 3, LARGE)
        dist.barrier()
        began = time.monotonic()
        wrong += groups.turn(4) + groups.turn(5)
        return wrong, failed, time.monotonic() - began

    got = world.run(body).unwrap()
    assert [wrong for wrong, _, _ in got] == [[]] * 4
    encode = all_alike([got[rank][1]["encode"] for rank in (0, 1, 2)])
    receive = all_alike([got[rank][1]["receive"] for rank in (1, 2, 3)])
    come = got[1][1]["come"]
    assert (encode.kind, encode.ranks) == ("EncodeError", (1,))
    assert (receive.kind, receive.ranks) == ("DecodeError", (1,))
    assert (come.kind, come.ranks) == ("PeerLost", (1,))
    # At once: nobody waits for a timeout that is over.
    assert max(seconds for _, _, seconds in got) < TIMEOUT_S / 2
