"""Stages that count their messages in tags, there and back, of which one has one of its tags wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind

DEADLINE_S = 60.0
TURNS = 3
Tag = Callable[[int, int, int], int]
"""Of the edge, by its lower rank, of the turn, and whether it goes back."""


def by_turn(edge: int, turn: int, back: int) -> int:
    return turn


def by_edge(edge: int, turn: int, back: int) -> int:
    return 20 * edge + 2 * turn + back


def by_way(edge: int, turn: int, back: int) -> int:
    return 2 * edge + back


def by_sender(edge: int, turn: int, back: int) -> int:
    return 10 * (edge + back) + turn


def by_turn_and_way(edge: int, turn: int, back: int) -> int:
    return 2 * turn + back


class Slip(NamedTuple):
    """Which half of a message has it: to the next rank or the one before, sent or received; and how."""

    there: str
    edge: int = 0
    turn: int = 0
    turned_round: bool = False

    def tag(self, tag: Tag, half: str, edge: int, turn: int, *, back: int, slips: bool) -> int:
        if not slips or half != self.there:
            return tag(edge, turn, back)
        return tag(edge + self.edge, turn + self.turn, 1 - back if self.turned_round else back)


def stages(tag: Tag, slip: Slip, odd: int, since: int) -> None:
    rank, last, value = dist.get_rank(), dist.get_world_size() - 1, torch.ones(3)

    def of(half: str, edge: int, turn: int, back: int) -> int:
        return slip.tag(tag, half, edge, turn, back=back, slips=rank == odd and turn >= since)

    for turn in range(TURNS):
        if rank > 0:
            dist.recv(value, rank - 1, tag=of("takes on", rank - 1, turn, 0))
        if rank < last:
            dist.send(value, rank + 1, tag=of("hands on", rank, turn, 0))
    for turn in range(TURNS):
        if rank < last:
            dist.recv(value, rank + 1, tag=of("takes back", rank, turn, 1))
        if rank > 0:
            dist.send(value, rank - 1, tag=of("hands back", rank - 1, turn, 1))


@pytest.mark.parametrize(
    ("tag", "slip", "odd", "since"),
    [
        pytest.param(by_turn, Slip("takes on", turn=1), 2, 1, id="turn"),
        pytest.param(by_edge, Slip("hands on", edge=-1), 2, 0, id="edge-from-the-first"),
        pytest.param(by_edge, Slip("takes on", edge=-1), 3, 0, id="edge-taken-by-the-last"),
        pytest.param(by_edge, Slip("takes back", edge=-1), 1, 0, id="edge-on-the-way-back"),
        pytest.param(by_edge, Slip("hands back", edge=1), 2, 1, id="edge-in-the-middle"),
        pytest.param(by_edge, Slip("takes back", turn=1), 2, 1, id="turn-on-the-way-back"),
        pytest.param(by_way, Slip("takes back", turned_round=True), 0, 0, id="way-by-the-first"),
        pytest.param(by_way, Slip("hands back", turned_round=True), 3, 0, id="way-by-the-last"),
        pytest.param(by_sender, Slip("hands on", edge=1), 1, 2, id="sender"),
        pytest.param(by_sender, Slip("takes back", turned_round=True), 1, 0, id="receiver-for-sender"),
        pytest.param(by_turn_and_way, Slip("takes back", turned_round=True), 2, 0, id="way-by-turns"),
        pytest.param(by_turn_and_way, Slip("hands back", turned_round=True), 2, 1, id="way-in-the-middle"),
    ],
)
def test_who_has_a_tag_unlike_all_others_is_told(four: World, tag: Tag, slip: Slip, odd: int, since: int) -> None:
    (finding,) = four.run(stages, tag, slip, odd, since, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.UNMATCHED, (odd,))


def with_a_tag_of_its_own(odd: int) -> None:
    """Who of the two is wrong nobody can say: nothing else goes that way, and the rest has no law."""
    rank, value = dist.get_rank(), torch.ones(2)
    if rank == 0:
        dist.send(value, 1, tag=4)
    elif rank == 1:
        dist.recv(value, 0, tag=7)
    elif rank == 2:
        for tag in (1, 9, 2):
            dist.send(value, 3, tag=tag)
    else:
        for tag in (1, 9, 2):
            dist.recv(value, 2, tag=tag)


def test_where_there_is_no_law_nobody_is_accused(four: World) -> None:
    (finding,) = four.run(with_a_tag_of_its_own, 1, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.UNMATCHED, ())
