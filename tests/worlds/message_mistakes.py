"""Programs of sends and receives with one mistake each, made by one rank, and the correct ones that resemble them.

Each goes around a ring, again and again; the mistake is in the last round. The line of the mistake ends in ``# odd``,
or where something is left out, in ``# left out``; that which does not fit it in ``# other``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["DEADLOCKS", "LOOSE", "MISMATCHES", "MISTAKES", "TWINS", "Body"]

Body = Callable[[int], Any]
ROUNDS = 4
LAST = ROUNDS - 1


def neighbours() -> tuple[int, int, int]:
    """Who is before this rank, itself, and after it."""
    rank, size = dist.get_rank(), dist.get_world_size()
    return (rank - 1) % size, rank, (rank + 1) % size


def pass_on(elements: int = 4) -> None:
    """One round without a mistake."""
    left, _, right = neighbours()
    work = dist.isend(torch.ones(elements), right)  # left out
    dist.recv(torch.ones(elements), left)  # other
    assert work is not None
    work.wait()


# ---------------------------------------------------------------------------------------------------- contracts


def sends_too_little(odd: int) -> None:
    left, rank, right = neighbours()
    for turn in range(ROUNDS):
        elements = 3 if rank == odd and turn == LAST else 4
        work = dist.isend(torch.ones(elements), right)  # odd
        dist.recv(torch.ones(4), left)  # other
        assert work is not None
        work.wait()


def expects_too_much(odd: int) -> None:
    left, rank, right = neighbours()
    for turn in range(ROUNDS):
        work = dist.isend(torch.ones(4), right)  # other
        if rank == odd and turn == LAST:
            dist.recv(torch.ones(5), left)  # odd
        else:
            dist.recv(torch.ones(4), left)
        assert work is not None
        work.wait()


def expects_another_dtype(odd: int) -> None:
    left, rank, right = neighbours()
    for turn in range(ROUNDS):
        work = dist.isend(torch.ones(4), right)  # other
        if rank == odd and turn == LAST:
            dist.recv(torch.ones(4, dtype=torch.int32), left)  # odd
        else:
            dist.recv(torch.ones(4), left)
        assert work is not None
        work.wait()


def another_size_in_a_batch(odd: int) -> None:
    left, rank, right = neighbours()
    for turn in range(ROUNDS):
        sent = torch.ones(6 if rank == odd and turn == LAST else 4)
        sends = dist.P2POp(dist.isend, sent, right)
        receives = dist.P2POp(dist.irecv, torch.ones(4), left)
        works = dist.batch_isend_irecv([sends, receives])  # odd # other
        for work in works:
            work.wait()


def takes_another_size_from_anybody(odd: int) -> None:
    left, rank, right = neighbours()
    for turn in range(ROUNDS):
        work = dist.isend(torch.ones(4), right)  # other
        source = dist.recv(torch.ones(5 if rank == odd and turn == LAST else 4))  # odd
        assert source == left
        assert work is not None
        work.wait()


# body: kind of finding, argument
MISMATCHES: dict[Body, tuple[str, str]] = {
    sends_too_little: ("size mismatch", "size"),
    expects_too_much: ("size mismatch", "size"),
    expects_another_dtype: ("datatype mismatch", "dtype"),
    another_size_in_a_batch: ("size mismatch", "size"),
    takes_another_size_from_anybody: ("size mismatch", "size"),
}


# ---------------------------------------------------------------------------------------------------- hangs


def another_tag(odd: int) -> None:
    left, rank, right = neighbours()
    for turn in range(ROUNDS):
        if rank == odd and turn == LAST:
            work = dist.isend(torch.ones(4), right, tag=8)  # odd
        else:
            work = dist.isend(torch.ones(4), right, tag=7)
        dist.recv(torch.ones(4), left, tag=7)  # other
        assert work is not None
        work.wait()


def awaits_another_tag(odd: int) -> None:
    left, rank, right = neighbours()
    for turn in range(ROUNDS):
        work = dist.isend(torch.ones(4), right, tag=turn)  # other
        if rank == odd and turn == LAST:
            dist.recv(torch.ones(4), left, tag=turn + 1)  # odd
        else:
            dist.recv(torch.ones(4), left, tag=turn)
        assert work is not None
        work.wait()


def sends_the_other_way(odd: int) -> None:
    left, rank, right = neighbours()
    for turn in range(ROUNDS):
        work = dist.isend(torch.ones(4), left if rank == odd and turn == LAST else right)  # odd
        dist.recv(torch.ones(4), left)  # other
        assert work is not None
        work.wait()


def awaits_the_other_one(odd: int) -> None:
    left, rank, right = neighbours()
    for turn in range(ROUNDS):
        work = dist.isend(torch.ones(4), right)  # other
        if rank == odd and turn == LAST:
            dist.recv(torch.ones(4), right)  # odd
        else:
            dist.recv(torch.ones(4), left)
        assert work is not None
        work.wait()


def on_another_group(odd: int) -> None:
    left, rank, right = neighbours()
    other = dist.new_group()
    for turn in range(ROUNDS):
        if rank == odd and turn == LAST:
            work = dist.isend(torch.ones(4), right, group=other)  # odd
        else:
            work = dist.isend(torch.ones(4), right)
        dist.recv(torch.ones(4), left)  # other
        assert work is not None
        work.wait()


def leaves_out_a_send(odd: int) -> None:
    left, rank, _ = neighbours()
    for turn in range(ROUNDS):
        if rank == odd and turn == LAST:
            dist.recv(torch.ones(4), left)
        else:
            pass_on()


def leaves_out_a_send_before_a_barrier(odd: int) -> None:
    left, rank, _ = neighbours()
    for turn in range(ROUNDS):
        if rank == odd and turn == LAST:
            dist.recv(torch.ones(4), left)
        else:
            pass_on()
        dist.barrier()


def leaves_out_a_receive(odd: int) -> None:
    left, rank, right = neighbours()
    for turn in range(ROUNDS):
        work = dist.isend(torch.ones(4), right)  # other
        if rank != odd or turn != LAST:
            dist.recv(torch.ones(4), left)  # left out
        assert work is not None
        work.wait()


def receives_once_more(odd: int) -> None:
    left, rank, _ = neighbours()
    for _ in range(ROUNDS):
        pass_on()
    if rank == odd:
        dist.recv(torch.ones(4), left)  # odd


def sends_once_more(odd: int) -> None:
    _, rank, right = neighbours()
    for _ in range(ROUNDS):
        pass_on()
    if rank == odd:
        dist.send(torch.ones(4), right)  # odd


def sends_outside(odd: int) -> None:
    _, rank, _ = neighbours()
    pass_on()
    if rank == odd:
        dist.send(torch.ones(4), dist.get_world_size())  # odd


# body: argument
MISTAKES: dict[Body, str] = {
    another_tag: "tag",
    awaits_another_tag: "tag",
    sends_the_other_way: "peer",
    awaits_the_other_one: "peer",
    on_another_group: "group",
    leaves_out_a_send: "missing send",
    leaves_out_a_send_before_a_barrier: "missing send",
    leaves_out_a_receive: "missing recv",
    receives_once_more: "extra recv",
    sends_once_more: "extra send",
    sends_outside: "peer",
}


def everybody_receives_first() -> None:
    left, _, right = neighbours()
    dist.recv(torch.ones(4), left)
    dist.send(torch.ones(4), right)


def everybody_sends_first() -> None:
    left, _, right = neighbours()
    pass_on()
    dist.send(torch.ones(4), right)
    dist.recv(torch.ones(4), left)


DEADLOCKS: list[Callable[[], None]] = [everybody_receives_first, everybody_sends_first]


# -------------------------------------------------------------------------------------------- nobody waits for it


def drops_a_send(odd: int) -> None:
    pass_on()
    if dist.get_rank() == odd:
        dist.isend(torch.ones(4), 0, tag=3)  # odd


def drops_a_receive(odd: int) -> None:
    pass_on()
    if dist.get_rank() == odd:
        dist.irecv(torch.ones(4), 0, tag=3)  # odd


LOOSE: tuple[Body, ...] = (drops_a_send, drops_a_receive)


# ---------------------------------------------------------------------------------------------------- correct


def sizes_in_turn(odd: int) -> None:
    for turn in range(6):
        pass_on(turn)


def a_shape_of_as_many(odd: int) -> None:
    left, _, right = neighbours()
    work = dist.isend(torch.ones(2, 3), right)
    dist.recv(torch.ones(6), left)
    assert work is not None
    work.wait()


def from_anybody_who_says_who(odd: int) -> None:
    size = dist.get_world_size()
    if dist.get_rank():
        dist.send(torch.ones(2), 0)
        dist.send(torch.ones(dist.get_rank()), 0)
    else:
        for _ in range(1, size):
            source = dist.recv(torch.ones(2))  # who comes first is anybody's guess
            dist.recv(torch.ones(source), source)


def several_from_anybody(odd: int) -> None:
    """Which of the receives takes which message is known to nobody but the backend."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank:
        dist.send(torch.ones(3), 0)
        dist.send(torch.ones(1), 0, tag=1)
    else:
        works = [dist.irecv(torch.ones(3)) for _ in range(1, size)]
        for work in works:
            assert work is not None
            work.wait()
        for source in range(1, size):
            dist.recv(torch.ones(1), source, tag=1)


def a_server(odd: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank:
        for turn in range(rank):
            dist.send(torch.tensor([rank, turn]), 0, tag=1)
            dist.recv(torch.zeros(turn + 1), 0, tag=2)
    else:
        request = torch.zeros(2, dtype=torch.int64)
        for _ in range(sum(range(size))):
            source = dist.recv(request, tag=1)
            assert source == request[0]
            dist.send(torch.ones(int(request[1]) + 1), source, tag=2)


def received_later(odd: int) -> None:
    left, _, right = neighbours()
    works = [dist.isend(torch.ones(turn + 1), right, tag=turn) for turn in range(3)]
    dist.barrier()
    for turn in range(3):
        dist.recv(torch.ones(turn + 1), left, tag=turn)
    for work in works:
        assert work is not None
        work.wait()


def received_in_another_order(odd: int) -> None:
    left, _, right = neighbours()
    works = [dist.isend(torch.ones(turn + 1), right, tag=turn) for turn in range(3)]
    works += [dist.irecv(torch.ones(turn + 1), left, tag=turn) for turn in (2, 0, 1)]
    for work in works:
        assert work is not None
        work.wait()


def a_batch_in_any_order(odd: int) -> None:
    left, rank, right = neighbours()
    both = [dist.P2POp(dist.isend, torch.ones(4), right), dist.P2POp(dist.irecv, torch.ones(4), left)]
    for work in dist.batch_isend_irecv(both if rank == odd else both[::-1]):
        work.wait()


def objects(odd: int) -> Any:
    left, rank, right = neighbours()
    if rank == 0:
        dist.send_object_list([rank, "x" * 50], right)
        got = [None, None]
        dist.recv_object_list(got, left)
    else:
        got = [None, None]
        dist.recv_object_list(got, left)
        dist.send_object_list([rank, None], right)
    assert got[0] == left


def to_oneself(odd: int) -> None:
    rank = dist.get_rank()
    try:
        dist.send(torch.ones(1), rank)
    except ValueError:
        pass
    else:
        raise AssertionError("torch refuses it")
    pass_on()


def among_members(odd: int) -> None:
    """Ranks of a group are other numbers than those of the world."""
    size = dist.get_world_size()
    members = list(range(size - 2, size))
    group = dist.new_group(members)
    other = dist.new_group(members)
    if dist.get_rank() in members:
        mine = members.index(dist.get_rank())
        for each, elements in ((group, 3), (other, 4)):
            work = dist.isend(torch.ones(elements), members[1 - mine], group=each)
            dist.recv(torch.ones(elements), group=each, group_src=1 - mine)
            assert work is not None
            work.wait()


def a_pipeline(odd: int) -> None:
    """Microbatches of which the last is smaller, and more of them in the second step."""
    left, rank, right = neighbours()
    for sizes in ((4, 4, 2), (4, 4, 4, 1)):
        for size in sizes:
            if rank:
                dist.recv(torch.ones(size), left)
            if right:
                dist.send(torch.ones(size), right)
        for size in reversed(sizes):
            if right:
                dist.recv(torch.ones(size, 2), right)
            if rank:
                dist.send(torch.ones(size, 2), left)


def from_two_threads(odd: int) -> None:
    left, _, right = neighbours()

    def go_round(tag: int) -> None:
        for _ in range(10):
            work = dist.isend(torch.ones(tag), right, tag=tag)
            dist.recv(torch.ones(tag), left, tag=tag)
            assert work is not None
            work.wait()

    threads = [threading.Thread(target=go_round, args=(tag,)) for tag in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def refused_and_sent_again(odd: int) -> None:
    left, _, right = neighbours()
    try:
        dist.isend(torch.ones(2, 2).t(), right)  # not contiguous
    except (ValueError, RuntimeError):
        pass
    else:
        dist.recv(torch.ones(4), left)
    pass_on()


TWINS: list[Body] = [
    sizes_in_turn,
    a_shape_of_as_many,
    from_anybody_who_says_who,
    several_from_anybody,
    a_server,
    received_later,
    received_in_another_order,
    a_batch_in_any_order,
    objects,
    to_oneself,
    among_members,
    a_pipeline,
    from_two_threads,
    refused_and_sent_again,
]
