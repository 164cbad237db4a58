"""Messages that look as if they crossed, raced or went astray."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from tests.catalogue.programs import Rank, correct


@correct(ranks=4)
def a_ring_that_one_rank_breaks(rank: Rank) -> None:
    block, received = torch.full((1 << 16,), float(rank.index)), torch.zeros(1 << 16)
    left, right = (rank.index - 1) % 4, (rank.index + 1) % 4
    if rank.index == 0:
        dist.recv(received, src=left)
        dist.send(block, dst=right)
    else:
        dist.send(block, dst=right)
        dist.recv(received, src=left)
    assert received[0].item() == left


@correct(ranks=2)
def received_in_another_order_than_sent(rank: Rank) -> None:
    small, large = torch.zeros(2), torch.zeros(5)
    if rank.index == 0:
        works = [dist.isend(small + 1, dst=1, tag=1), dist.isend(large + 2, dst=1, tag=2)]
        for work in works:
            work.wait()
    else:
        dist.recv(large, src=0, tag=2)
        dist.recv(small, src=0, tag=1)
        assert (small.sum().item(), large.sum().item()) == (2, 10)


@correct(ranks=2)
def one_tag_again_and_again(rank: Rank) -> None:
    number = torch.zeros(1)
    for step in range(50):
        if rank.index == 0:
            dist.send(number + step, dst=1, tag=7)
        else:
            dist.recv(number, src=0, tag=7)
            assert number.item() == step


@correct(ranks=3)
def from_anybody_but_only_one_can_have_sent(rank: Rank) -> None:
    value = torch.zeros(1)
    if rank.index == 0:
        for expected in (1, 2):
            assert dist.recv(value) == expected
            rank.store.set(f"taken/{expected}", "yes")
    else:
        if rank.index == 2:
            rank.store.wait(["taken/1"])
        dist.send(value, dst=0)


@correct(ranks=2)
def from_anybody_of_two(rank: Rank) -> None:
    value = torch.zeros(3)
    if rank.index == 1:
        dist.send(value + 4, dst=0)
    else:
        assert dist.recv(value) == 1
        assert value.sum().item() == 12


@correct(ranks=3)
def sent_early_and_waited_for_late(rank: Rank) -> None:
    right, left = (rank.index + 1) % 3, (rank.index - 1) % 3
    block, received = torch.full((8,), float(rank.index)), torch.zeros(8)
    work = dist.isend(block, dst=right)
    for _ in range(5):
        dist.all_reduce(torch.ones(4))
    dist.recv(received, src=left)
    dist.barrier()
    work.wait()
    assert received[0].item() == left


@correct(ranks=4)
def neighbours_in_a_batch(rank: Rank) -> None:
    left, right = (rank.index - 1) % 4, (rank.index + 1) % 4
    from_left, from_right = torch.zeros(2), torch.zeros(2)
    mine = torch.full((2,), float(rank.index))
    exchanges = [
        dist.P2POp(dist.isend, mine, right, tag=1),
        dist.P2POp(dist.irecv, from_left, left, tag=1),
        dist.P2POp(dist.isend, mine, left, tag=2),
        dist.P2POp(dist.irecv, from_right, right, tag=2),
    ]
    if rank.index % 2:
        exchanges.reverse()
    for request in dist.batch_isend_irecv(exchanges):
        request.wait()
    assert (from_left[0].item(), from_right[0].item()) == (left, right)


@correct(ranks=4)
def a_pipeline_of_microbatches(rank: Rank) -> None:
    activation = torch.zeros(4)
    for number in range(6):
        if rank.index > 0:
            dist.recv(activation, src=rank.index - 1)
        else:
            activation.fill_(number)
        activation += 1
        if rank.index < 3:
            dist.send(activation, dst=rank.index + 1)
    dist.barrier()
    assert activation[0].item() == 5 + rank.index + 1


@correct(ranks=2)
def forward_and_back(rank: Rank) -> None:
    """One forward, one backward: the first stage runs two microbatches ahead."""
    activation, gradient = torch.ones(4), torch.zeros(4)
    if rank.index == 0:
        ahead = [dist.isend(activation, dst=1) for _ in range(2)]
        for _ in range(6):
            dist.recv(gradient, src=1)
            ahead.append(dist.isend(activation, dst=1))
        for _ in range(2):
            dist.recv(gradient, src=1)
        for work in ahead:
            work.wait()
    else:
        for _ in range(8):
            dist.recv(activation, src=0)
            dist.send(gradient + 1, dst=0)


@correct(ranks=4)
def workers_and_one_that_hands_out(rank: Rank) -> None:
    """Who works more gets more: how many messages there are nobody knows beforehand."""
    task = torch.zeros(1)
    if rank.index:
        while True:
            dist.send(task, dst=0, tag=1)
            dist.recv(task, src=0, tag=2)
            if task.item() < 0:
                return
    left = 10
    for finished in range(13):
        worker = dist.recv(task, tag=1)
        dist.send(torch.tensor([float(left) if finished < 10 else -1.0]), dst=worker, tag=2)
        left -= 1


@correct(ranks=3)
def objects_to_one_of_two(rank: Rank) -> None:
    if rank.index == 0:
        dist.send_object_list([{"epoch": 3}, "x" * 1000], dst=2)
    elif rank.index == 2:
        box: list[Any] = [None, None]
        dist.recv_object_list(box, src=0)
        assert box[0] == {"epoch": 3}
    dist.barrier()


@correct(ranks=2)
def as_many_bytes_as_announced(rank: Rank) -> None:
    for length in (3, 0, 17):
        if rank.index == 0:
            dist.send(torch.tensor([length]), dst=1)
            if length:
                dist.send(torch.ones(length), dst=1)
        else:
            announced = torch.zeros(1, dtype=torch.int64)
            dist.recv(announced, src=0)
            if announced.item():
                dist.recv(torch.zeros(int(announced)), src=0)


@correct(ranks=6)
def messages_between_collectives(rank: Rank) -> None:
    partner = rank.index ^ 1
    for step in range(20):
        dist.all_reduce(torch.ones(2))
        if rank.index % 2 == step % 2:
            dist.send(torch.ones(3), dst=partner, tag=step)
        else:
            dist.recv(torch.zeros(3), src=partner, tag=step)
    dist.barrier()


@correct(ranks=3)
def posted_before_anybody_sends(rank: Rank) -> None:
    if rank.index == 1:
        buffers = {src: torch.zeros(2) for src in (0, 2)}
        requests = {src: dist.irecv(buffer, src=src) for src, buffer in buffers.items()}
        dist.barrier()
        for src in (2, 0):
            requests[src].wait()
            assert buffers[src][0].item() == src
    else:
        dist.barrier()
        dist.send(torch.full((2,), float(rank.index)), dst=1)


@correct(ranks=4)
def whoever_comes_first_is_counted_first(rank: Rank) -> None:
    """Nobody asks who sent what: whole numbers add up to the same in every order, and the largest is the largest."""
    if rank.index == 0:
        rows = torch.zeros(3, 2, dtype=torch.int64)
        for row in rows:
            dist.recv(row)
        assert rows.sum(0).tolist() == [6, 3]
        assert rows.amax(0).tolist() == [3, 1]
    else:
        dist.send(torch.tensor([rank.index, 1]), dst=0)


@correct(ranks=4)
def a_message_that_says_whose_it_is(rank: Rank) -> None:
    question, answer = torch.zeros(2), torch.zeros(1)
    if rank.index == 0:
        for _ in (1, 2, 3):
            dist.recv(question)
            worker = int(question[0])
            dist.send(question[1:] * 2, dst=worker)
    else:
        dist.send(torch.tensor([float(rank.index), 10.0 * rank.index]), dst=0)
        dist.recv(answer, src=0)
        assert answer.item() == 20 * rank.index


@correct(ranks=4)
def they_say_that_they_are_done(rank: Rank) -> None:
    """What they say is never looked at."""
    word = torch.zeros(1)
    if rank.index == 3:
        for _ in range(3):
            dist.recv(word)
    else:
        dist.send(word + rank.index, dst=3)
    dist.barrier()


@correct(ranks=6)
def results_that_are_sorted_afterwards(rank: Rank) -> None:
    for step in range(5):
        if rank.index == 5:
            buffers = [torch.zeros(2) for _ in range(5)]
            for buffer in buffers:
                dist.irecv(buffer, tag=3).wait()
            assert sorted(buffer[0].item() for buffer in buffers) == [step * 10 + each for each in range(5)]
        else:
            dist.send(torch.full((2,), step * 10.0 + rank.index), dst=5, tag=3)
        dist.barrier()


@correct(ranks=3)
def one_speaks_in_each_round(rank: Rank) -> None:
    """From anybody, and only one can have sent: who does is agreed on, and a barrier parts the rounds."""
    value = torch.zeros(2)
    for speaker in (1, 2, 1):
        if rank.index == speaker:
            dist.send(torch.full((2,), float(speaker)), dst=0)
        elif rank.index == 0:
            dist.recv(value)
            assert value[0].item() == speaker
        dist.barrier()


@correct(ranks=4)
def updates_in_whatever_order(rank: Rank) -> None:
    """An asynchronous server of parameters, as it is meant to be: each update is taken as it comes."""
    update, weights = torch.zeros(4), torch.ones(4)
    if rank.index == 0:
        for _ in range(9):
            dist.recv(update, tag=1)
            weights -= update
        assert weights[0].item() == 1 - 3 * 1.75
    else:
        for _ in range(3):
            dist.send(torch.full((4,), 2.0 ** -(rank.index - 1)), dst=0, tag=1)


@correct(ranks=4)
def two_pipelines_of_two_stages(rank: Rank) -> None:
    """Only the first sends to the rank that is its next stage's number."""
    stage, first = rank.index % 2, rank.index // 2 * 2
    if stage == 0:
        dist.send(torch.ones(4), dst=first + stage + 1)
    else:
        dist.recv(torch.zeros(4), src=first + stage - 1)


@correct(ranks=4)
def one_sends_to_the_other_pipeline_too(rank: Rank) -> None:
    """Rank 1 takes from both first stages, and rank 2 sends to both second ones."""
    peers = {0: [1], 1: [0, 2], 2: [1, 3], 3: [2]}[rank.index]
    for peer in peers:
        if rank.index % 2 == 0:
            dist.send(torch.ones(4), dst=peer)
        else:
            dist.recv(torch.zeros(4), src=peer)


@correct(ranks=3)
def the_last_stage_is_told_when_all_is_done(rank: Rank) -> None:
    """It takes one message more than the stages before it, on the same line."""
    activation = torch.ones(4)
    for _ in range(3 + (rank.index == 2)):
        if rank.index > 0:
            dist.recv(activation, src=rank.index - 1)
        if rank.index < 2:
            dist.send(activation, dst=rank.index + 1)
    if rank.index == 1:
        dist.send(torch.zeros(4), dst=2)


@correct(ranks=4)
def halos_around_a_ring(rank: Rank) -> None:
    mine, halos = torch.full((2,), float(rank.index)), [torch.zeros(2), torch.zeros(2)]
    exchanges = []
    for step, halo in zip((-1, 1), halos, strict=True):
        neighbour = (rank.index + step) % 4
        tags = (1, 2) if step == 1 else (2, 1)
        exchanges.append(dist.P2POp(dist.isend, mine, neighbour, tag=tags[0]))
        exchanges.append(dist.P2POp(dist.irecv, halo, neighbour, tag=tags[1]))
    for request in dist.batch_isend_irecv(exchanges):
        request.wait()
    assert [float(halo[0]) for halo in halos] == [(rank.index - 1) % 4, (rank.index + 1) % 4]


@correct(ranks=5)
def those_with_an_odd_number_get_no_work(rank: Rank) -> None:
    """Two take what the first gives, two have gone past that line."""
    work = torch.ones(3)
    if rank.index == 0:
        for other in (2, 4):
            dist.send(work, other)
    elif not rank.index % 2:
        dist.recv(work, 0)
    dist.barrier()
