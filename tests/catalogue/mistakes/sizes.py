"""Size mismatch: what ranks send is more or less than what others expect."""

from __future__ import annotations

import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from tests.catalogue.programs import Rank, mistake


@mistake("size mismatch", culprits=(3,), ranks=4)
def the_last_batch_is_smaller(rank: Rank) -> None:
    samples = torch.ones(19 if rank.index == 3 else 20)
    for batch in samples.split(5):
        everyones = [torch.empty_like(batch) for _ in range(4)]
        dist.all_gather(everyones, batch)  # culprit


@mistake("size mismatch", culprits=(1,), ranks=3)
def another_vocabulary(rank: Rank) -> None:
    words = ["the", "a", "of"] + (["<pad>"] if rank.index == 1 else [])
    embedding = torch.nn.Embedding(len(words), 4)
    for parameter in embedding.parameters():
        dist.broadcast(parameter.data, src=0)  # culprit


@mistake("size mismatch", ranks=2)
def splits_that_do_not_fit(rank: Rank) -> None:
    sends = [1, 7] if rank.index == 0 else [4, 4]
    received = torch.zeros(8)
    dist.all_to_all_single(received, torch.ones(8), [4, 4], sends)  # culprit


@mistake("size mismatch", culprits=(2,), ranks=4)
def routes_one_row_more_to_an_expert(rank: Rank) -> None:
    rows = [1, 1, 1, 1]
    sends = [1, 2, 1, 0] if rank.index == 2 else rows
    dist.all_to_all_single(torch.zeros(4, 3), torch.ones(4, 3), rows, sends)  # culprit
    dist.barrier()


@mistake("size mismatch", culprits=(0,), ranks=3)
def hands_out_less_than_is_expected(rank: Rank) -> None:
    if rank.index == 0:
        dist.scatter(torch.zeros(3), list(torch.ones(9).split(3)), src=0)  # culprit
    else:
        dist.scatter(torch.zeros(4), src=0)


@mistake("size mismatch", ranks=2)
def a_message_larger_than_its_buffer(rank: Rank) -> None:
    if rank.index == 0:
        dist.send(torch.ones(8), dst=1)  # culprit
    else:
        dist.recv(torch.zeros(4), src=0)  # culprit


@mistake("size mismatch", between=(1, 2), ranks=3)
def a_message_smaller_than_its_buffer(rank: Rank) -> None:
    """A sequence is cut before it is passed on; the next stage expects it whole."""
    sequence = torch.zeros(6)
    if rank.index > 0:
        dist.recv(sequence, src=rank.index - 1)  # culprit
    if rank.index < 2:
        dist.send(sequence if rank.index == 0 else sequence[:4], dst=rank.index + 1)  # culprit


@mistake("size mismatch", culprits=(1,), ranks=4)
def grows_in_the_fiftieth_step(rank: Rank) -> None:
    for step in range(60):
        history = torch.ones(5 if step == 49 and rank.index == 1 else 4)
        dist.all_reduce(torch.ones(2))
        dist.reduce(history, dst=3)  # culprit


@mistake("size mismatch", culprits=(5,), ranks=6)
def one_channel_more_in_a_sub_group(rank: Rank) -> None:
    group = dist.new_group([3, 4, 5])
    if rank.index >= 3:
        image = torch.ones(4 if rank.index == 5 else 3, 8, 8)
        dist.broadcast(image, src=3, group=group)  # culprit
    dist.barrier()


@mistake("size mismatch", culprits=(2,), ranks=3)
def a_list_of_two_objects(rank: Rank) -> None:
    box = [None, None] if rank.index == 2 else [{"epoch": 1}]
    dist.broadcast_object_list(box, src=0)  # culprit


@mistake("size mismatch", culprits=(0,), ranks=4)
def functional_gather_of_a_longer_tensor(rank: Rank) -> None:
    mine = torch.ones(3 if rank.index == 0 else 2)
    everyones = funcol.all_gather_tensor(mine, 0, rank.group)  # culprit
    assert everyones.numel() > 0


@mistake("size mismatch", culprits=(0,), ranks=4)
def neighbours_with_other_borders(rank: Rank) -> None:
    """Rank 0 keeps a border of two rows, all others one."""
    right, left = (rank.index + 1) % 4, (rank.index - 1) % 4
    received = torch.zeros(1, 8)
    border = torch.ones(2 if rank.index == 0 else 1, 8)
    for request in dist.batch_isend_irecv(  # culprit
        [
            dist.P2POp(dist.isend, border, right),  # culprit
            dist.P2POp(dist.irecv, received, left),  # culprit
        ]
    ):
        request.wait()


@mistake("size mismatch", culprits=(1,), ranks=3)
def asynchronous_buckets_of_another_size(rank: Rank) -> None:
    parameters = torch.ones(30)
    buckets = parameters.split(8 if rank.index == 1 else 10)
    for work in [dist.all_reduce(bucket, async_op=True) for bucket in buckets[:3]]:  # culprit
        work.wait()


@mistake("size mismatch", culprits=(0,), ranks=3)
def a_line_of_its_own_that_always_fitted(rank: Rank) -> None:
    """Two lines that met in each step before are one call of the program: neither leaves the other out."""
    for step in range(4):
        if rank.index == 0:
            dist.all_reduce(torch.zeros(6 if step == 3 else 5))  # culprit
        if rank.index != 0:
            dist.all_reduce(torch.ones(5))


@mistake("size mismatch", culprits=(1,), also=("lost rank",), ranks=4)
def a_rest_that_does_not_divide(rank: Rank) -> None:
    """The root cuts what there is in four, and the last piece is shorter; all expect as much."""
    mine = torch.empty(3)
    pieces = list(torch.arange(11.0).split(3)) if rank.index == 1 else None  # culprit
    dist.scatter(mine, pieces, src=1)  # culprit


@mistake("size mismatch", culprits=(2,), ranks=3)
def takes_no_more_than_there_is_room_for(rank: Rank) -> None:
    sends = [[1, 2, 2], [2, 1, 1], [1, 1, 4]][rank.index]
    counts = torch.empty(3, dtype=torch.long)
    dist.all_to_all_single(counts, torch.tensor(sends))
    takes = counts.tolist()
    if rank.index == 2:
        takes = [min(count, 1) for count in takes]  # culprit
    dist.all_to_all_single(torch.empty(sum(takes)), torch.ones(sum(sends)), takes, sends)  # culprit


@mistake("size mismatch", between=(0, 2), ranks=4)
def two_of_the_experts_differ(rank: Rank) -> None:
    """Of all pairs one does not fit, whatever the others exchange."""
    sends, takes = [2, 2, 2, 2], [2, 2, 2, 2]
    if rank.index == 0:
        sends = [1, 2, 3, 2]
        takes = [1, 2, 2, 2]
    dist.all_to_all_single(torch.zeros(sum(takes), 2), torch.ones(sum(sends), 2), takes, sends)  # culprit


@mistake("size mismatch", culprits=(2,), ranks=4)
def a_stage_of_another_width(rank: Rank) -> None:
    """In one step: by the same line it takes as many as are sent in the step before, and after."""
    for step in range(3):
        if rank.index == 0:
            dist.send(torch.ones(8), dst=1)
        elif rank.index == 1:
            hidden = torch.zeros(8)
            dist.recv(hidden, src=0)
            dist.send(hidden, dst=2)
        elif rank.index == 2:
            narrow = torch.zeros(4 if step == 1 else 8)  # culprit
            dist.recv(narrow, src=1)  # culprit
            dist.send(torch.ones(3), dst=3)
        else:
            dist.recv(torch.zeros(3), src=2)


@mistake("size mismatch", culprits=(2,), ranks=3)
def drops_rows_that_it_has_announced(rank: Rank) -> None:
    """To a receiver that is full; what it has told the others stays as it was."""
    rows = [2, 4, 1] if rank.index == 2 else [1, 2, 2]
    told, expected = torch.tensor(rows), torch.empty(3, dtype=torch.int64)
    dist.all_to_all_single(expected, told)
    sends = [min(count, 3) for count in rows]
    sent, received = torch.ones(sum(sends), 2), torch.empty(int(expected.sum()), 2)
    dist.all_to_all_single(received, sent, expected.tolist(), sends)  # culprit
    dist.barrier()


@mistake("size mismatch", between=(0, 1), ranks=2)
def a_body_of_another_size_than_its_header_says(rank: Rank) -> None:
    """From the one that the header came from, though both may be anybody's."""
    if rank.index == 0:
        found: dict[int, float] = {}
        for _ in range(2):
            header, body = torch.empty(1), torch.empty(6)
            sender = dist.recv(header)
            dist.recv(body)  # culprit
            found[sender] = body[: int(header[0])].sum().item()
    else:
        for size in (6, 4):
            dist.send(torch.tensor([float(size)]), dst=0)
            dist.send(torch.ones(size), dst=0)  # culprit


@mistake("size mismatch", culprits=(2,), ranks=3)
def a_frozen_head_left_out_of_one_round(rank: Rank) -> None:
    """Next round it brings them all again: that is no other order."""
    parameters = [torch.ones(6, 6), torch.ones(6), torch.ones(2, 6), torch.ones(2)]
    for step in range(3):
        shared = parameters[:2] if rank.index == 2 and step == 1 else parameters
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            dist.all_reduce_coalesced(shared)  # culprit


@mistake("size mismatch", culprits=(0,), ranks=4)
def expects_one_less_of_the_last(rank: Rank) -> None:
    expects = [3, 3, 3, 3]
    if rank.index == 0:
        expects[3] = 2  # culprit
    taken = torch.zeros(sum(expects))
    dist.all_to_all_single(taken, torch.ones(12), expects, [3, 3, 3, 3])  # culprit


@mistake("size mismatch", culprits=(3,), ranks=4)
def expects_as_many_as_it_sends(rank: Rank) -> None:
    plan = [[1, 2, 3, 1], [4, 2, 1, 4], [3, 2, 1, 2], [1, 4, 3, 2]]
    sends = plan[rank.index]
    expects = sends if rank.index == 3 else [row[rank.index] for row in plan]  # culprit
    taken = torch.zeros(sum(expects))
    dist.all_to_all_single(taken, torch.ones(sum(sends)), expects, sends)  # culprit


@mistake("size mismatch", culprits=(2,), ranks=3)
def one_actor_sends_a_field_more(rank: Rank) -> None:
    """What rank 1 sends fits: two of three have it so."""
    fields = ["observation", "action", "reward"] + (["done"] if rank.index == 2 else [])
    for _ in range(2):
        if rank.index == 0:
            for actor in (1, 2):
                dist.recv(torch.empty(3), actor)
        else:
            dist.send(torch.ones(len(fields)), 0)  # culprit


@mistake("size mismatch", culprits=(2,), ranks=3, also=("call ordering",))
def an_old_client_asks_for_the_version_first(rank: Rank) -> None:
    parts = {"weights": torch.ones(12), "version": torch.ones(1)}
    if rank.index == 0:
        for client in (1, 2):
            dist.send(parts["weights"], client)
            dist.send(parts["version"], client)
    else:
        for name in sorted(parts, reverse=rank.index == 1):  # culprit
            dist.recv(parts[name], 0)  # culprit
