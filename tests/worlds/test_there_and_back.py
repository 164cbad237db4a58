"""Messages that ranks send there and back, round by round, of which one is left out, or one has another tag or peer.

Each body goes wrong at rank `odd` in round `at`, and is right where `odd` is no rank.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind

ROUNDS = 3
NOBODY = -1
Body = Callable[[int, int], None]


def stages(odd: int, at: int, *, left_out: str) -> None:
    rank, size, data = dist.get_rank(), dist.get_world_size(), torch.ones(3)
    for turn in range(ROUNDS):
        skips = left_out if (rank, turn) == (odd, at) else ""
        if skips == "round":
            continue
        if rank > 0 and skips != "recv":
            dist.recv(data, rank - 1)
        if rank < size - 1:
            if skips != "send":
                dist.send(data, rank + 1)
            dist.recv(data, rank + 1)
        if rank > 0:
            dist.send(data, rank - 1)
    dist.barrier()


def a_stage_does_not_receive(odd: int, at: int) -> None:
    stages(odd, at, left_out="recv")


def a_stage_does_not_send(odd: int, at: int) -> None:
    stages(odd, at, left_out="send")


def a_stage_is_out_for_a_round(odd: int, at: int) -> None:
    stages(odd, at, left_out="round")


def a_worker_is_out_for_a_round(odd: int, at: int) -> None:
    rank, others, data = dist.get_rank(), range(1, dist.get_world_size()), torch.ones(3)
    for turn in range(ROUNDS):
        if rank == 0:
            for other in others:
                dist.recv(data, other)
            for other in others:
                dist.send(data, other)
            continue
        if (rank, turn) == (odd, at):
            continue
        dist.send(data, 0)
        dist.recv(data, 0)


def in_a_tree(odd: int, at: int) -> None:
    rank, data = dist.get_rank(), torch.ones(3)
    below = [each for each in (2 * rank + 1, 2 * rank + 2) if each < dist.get_world_size()]
    for turn in range(ROUNDS):
        for each in below:
            dist.recv(data, each)
        if rank:
            if (rank, turn) != (odd, at):
                dist.send(data, (rank - 1) // 2)
            dist.recv(data, (rank - 1) // 2)
        for each in below:
            dist.send(data, each)


@pytest.mark.parametrize(
    ("body", "odd", "at"),
    [
        (a_stage_does_not_receive, 1, 1),
        (a_stage_does_not_receive, 2, 1),
        (a_stage_does_not_send, 1, 2),
        (a_stage_is_out_for_a_round, 0, 1),
        (a_stage_is_out_for_a_round, 3, 2),
        (a_worker_is_out_for_a_round, 1, 0),
        (a_worker_is_out_for_a_round, 3, 2),
        (in_a_tree, 1, 1),
        (in_a_tree, 2, 2),
    ],
)
def test_who_has_left_one_out(four: World, body: Body, odd: int, at: int) -> None:
    (found,) = four.run(body, odd, at, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (odd,))


@pytest.mark.parametrize("body", [a_stage_does_not_send, a_worker_is_out_for_a_round, in_a_tree])
def test_all_come_round(four: World, body: Body) -> None:
    four.run(body, NOBODY, NOBODY, deadline=30).unwrap()


def beside_each_other(odd: int, at: int) -> None:
    """Two ranks that talk about something else are usually those that would have been blamed."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for turn in range(ROUNDS):
        batch = []
        for peer in (rank - 1, rank + 1):
            if 0 <= peer < size:
                tag = 5 if (rank, turn) == (odd, at) and peer > rank else 0
                batch.append(dist.P2POp(dist.isend, torch.ones(2), peer, tag=tag))
                batch.append(dist.P2POp(dist.irecv, torch.ones(2), peer))
        for work in dist.batch_isend_irecv(batch):
            work.wait()


@pytest.mark.parametrize(("odd", "at"), [(0, 0), (1, 0), (1, 2)])
def test_another_tag_comes_before_another_peer(four: World, odd: int, at: int) -> None:
    (found,) = four.run(beside_each_other, odd, at, deadline=30).findings
    assert (found.kind, found.argument, found.culprits) == (FindingKind.UNMATCHED, "tag", (odd,))


def a_grid(odd: int) -> None:
    """Two rows of two; the `odd` one takes its row for a ring, which goes on in the other row."""
    rank = dist.get_rank()
    row, column = divmod(rank, 2)
    peers = {(1 - row) * 2 + column, row * 2 + 1 - column}
    if rank == odd:
        peers.add((rank + 1) % 4 if (rank + 1) % 4 not in peers else (rank + 3) % 4)
    batch = [dist.P2POp(way, torch.ones(2), peer) for peer in sorted(peers) for way in (dist.isend, dist.irecv)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()


@pytest.mark.parametrize("odd", [0, 3])
def test_who_goes_beyond_the_border_of_a_grid(four: World, odd: int) -> None:
    """That others have exchanged one message with it, each, says nothing of whom it should leave alone."""
    (found,) = four.run(a_grid, odd, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (odd,))
