"""Unmatched message: a send that nobody receives, a receive that nobody sends to."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from tests.catalogue.programs import Rank, mistake


@mistake("unmatched message", culprits=(2,), ranks=4)
def one_of_the_ring_does_not_send(rank: Rank) -> None:
    block = torch.ones(4)
    received = torch.zeros(4)
    work = None
    if rank.index != 2:  # culprit
        work = dist.isend(block, dst=(rank.index + 1) % 4)  # culprit
    dist.recv(received, src=(rank.index - 1) % 4)  # culprit
    if work is not None:
        work.wait()


@mistake("unmatched message", ranks=2)
def another_tag(rank: Rank) -> None:
    for tag in (0, 1, 2) if rank.index == 0 else (0, 1, 3):
        if rank.index == 0:
            dist.send(torch.ones(3), dst=1, tag=tag)  # culprit
        else:
            dist.recv(torch.zeros(3), src=0, tag=tag)  # culprit


@mistake("unmatched message", culprits=(0,), ranks=3)
def sent_to_another(rank: Rank) -> None:
    weights = torch.ones(2)
    if rank.index == 0:
        dist.send(weights, dst=2)  # culprit
    elif rank.index == 1:
        dist.recv(weights, src=0)
    if rank.index == 0:
        dist.recv(weights, src=1)
    elif rank.index == 1:
        dist.send(weights, dst=0)


@mistake("unmatched message", ranks=2)
def one_message_more_is_expected(rank: Rank) -> None:
    batch = torch.ones(4)
    for _ in range(50 + rank.index):
        if rank.index == 0:
            dist.send(batch, dst=1)  # culprit
        else:
            dist.recv(batch, src=0)  # culprit


@mistake("unmatched message", culprits=(3,), ranks=4)
def the_last_stage_passes_on(rank: Rank) -> None:
    """There is nobody behind the last stage; the number wraps round to one that expects nothing."""
    activation = torch.ones(4)
    if rank.index > 0:
        dist.recv(activation, src=rank.index - 1)
    dist.send(activation, dst=(rank.index + 1) % 4)  # culprit


@mistake("unmatched message", culprits=(3,), ranks=4)
def a_worker_that_does_not_say_it_is_done(rank: Rank) -> None:
    word = torch.zeros(1)
    if rank.index == 0:
        running = {1, 2, 3}
        for worker in sorted(running):
            while word.item() >= 0:
                dist.recv(word, src=worker)
            word.zero_()
        return
    for result in range(3):
        dist.send(word + result, dst=0)  # culprit
    if rank.index != 3:  # culprit
        dist.send(word - 1, dst=0)  # culprit


@mistake("unmatched message", culprits=(1,), ranks=3)
def sends_to_the_left_only(rank: Rank) -> None:
    left, right = (rank.index - 1) % 3, (rank.index + 1) % 3
    halo, from_left, from_right = torch.ones(2), torch.zeros(2), torch.zeros(2)
    exchanges = [dist.P2POp(dist.irecv, from_left, left, tag=1), dist.P2POp(dist.irecv, from_right, right, tag=2)]
    exchanges.append(dist.P2POp(dist.isend, halo, left, tag=2))
    if rank.index != 1:  # culprit
        exchanges.append(dist.P2POp(dist.isend, halo, right, tag=1))  # culprit
    for request in dist.batch_isend_irecv(exchanges):  # culprit
        request.wait()  # culprit


@mistake("unmatched message", ranks=2)
def objects_that_nobody_takes(rank: Rank) -> None:
    if rank.index == 0:
        dist.send_object_list([{"epoch": 1}], dst=1)
        dist.send_object_list([{"epoch": 2}], dst=1)  # culprit
    else:
        box: list[Any] = [None]
        dist.recv_object_list(box, src=0)
    dist.barrier()  # culprit


@mistake("unmatched message", culprits=(2,), ranks=4)
def a_tag_too_far_in_the_fiftieth_step(rank: Rank) -> None:
    partner, sends = rank.index ^ 1, rank.index % 2 == 0
    for step in range(52):
        tag = step + 1 if step == 49 and rank.index == 2 else step
        if sends:
            dist.send(torch.ones(2), dst=partner, tag=tag)  # culprit
        else:
            dist.recv(torch.zeros(2), src=partner, tag=tag)  # culprit


@mistake("unmatched message", culprits=(1,), ranks=3)
def a_stage_with_fewer_microbatches(rank: Rank) -> None:
    microbatches = 3 if rank.index == 1 else 4
    activation = torch.ones(8)
    for _ in range(microbatches):  # culprit
        if rank.index > 0:
            dist.recv(activation, src=rank.index - 1)  # culprit
        if rank.index < 2:
            dist.send(activation, dst=rank.index + 1)  # culprit


@mistake("unmatched message", culprits=(0,), ranks=3)
def answers_only_one_of_two(rank: Rank) -> None:
    request, answer = torch.ones(1), torch.zeros(1)
    if rank.index == 0:
        for worker in (1, 2):
            dist.recv(request, src=worker)  # culprit
        dist.send(answer, dst=1)  # culprit
    else:
        dist.send(request, dst=0)
        dist.recv(answer, src=0)


@mistake("unmatched message", culprits=(4,), ranks=6)
def received_from_the_partners_neighbour(rank: Rank) -> None:
    partner = (rank.index + 3) % 6
    source = partner + 1 if rank.index == 4 else partner
    work = dist.isend(torch.ones(1), dst=partner)
    dist.recv(torch.zeros(1), src=source)  # culprit
    work.wait()


@mistake("unmatched message", ranks=2)
def another_tag_than_the_round_before(rank: Rank) -> None:
    """One against one, whatever was usual."""
    tags = {"activation": 7, "mask": 8}
    for step in range(3):
        if rank.index == 0:
            for tag in (7, 8):
                dist.send(torch.ones(4), dst=1, tag=tag)  # culprit
        else:
            if step == 1:
                tags["mask"] = 9  # culprit
            for name in ("activation", "mask"):
                dist.recv(torch.zeros(4), src=0, tag=tags[name])  # culprit


@mistake("unmatched message", culprits=(0,), ranks=3)
def received_twice_from_one_and_never_from_the_other(rank: Rank) -> None:
    for step in range(4):
        if rank.index == 0:
            for worker in (1, 2):
                dist.recv(torch.zeros(4), src=2 if step == 2 else worker)  # culprit
        else:
            dist.send(torch.ones(4), dst=0)


@mistake("unmatched message", culprits=(0,), ranks=3)
def sent_twice_to_one_and_never_to_the_other(rank: Rank) -> None:
    for step in range(4):
        if rank.index == 0:
            for worker in (1, 2):
                dist.send(torch.ones(4), dst=1 if step == 3 else worker)  # culprit
        else:
            dist.recv(torch.zeros(4), src=0)


@mistake("unmatched message", culprits=(2,), ranks=4)
def a_stage_for_a_rank(rank: Rank) -> None:
    """Of the second pipeline, ranks 2 and 3; what it sends to is the next stage's number."""
    stage = rank.index % 2
    if stage == 0:
        dist.send(torch.ones(4), dst=stage + 1)  # culprit
    else:
        dist.recv(torch.zeros(4), src=rank.index - 1)


@mistake("unmatched message", culprits=(3,), ranks=4)
def expected_from_a_stage_for_a_rank(rank: Rank) -> None:
    stage = rank.index % 2
    if stage == 0:
        dist.send(torch.ones(4), dst=rank.index + 1)
    else:
        dist.recv(torch.zeros(4), src=stage - 1)  # culprit


@mistake("unmatched message", culprits=(0,), ranks=4)
def the_first_stage_drops_what_is_left(rank: Rank) -> None:
    """All stages behind it expect a last microbatch that is not full."""
    full, rest = divmod(14, 4)
    microbatches = full if rank.index == 0 else full + bool(rest)
    activation = torch.ones(4, 2)
    for _ in range(microbatches):  # culprit
        if rank.index > 0:
            dist.recv(activation, src=rank.index - 1)
        if rank.index < 3:
            dist.send(activation, dst=rank.index + 1)  # culprit


@mistake("unmatched message", culprits=(4,), ranks=5)
def numbered_by_the_hundred(rank: Rank) -> None:
    """Tags begin with the number of the stage that sends; the last one takes its own."""
    block = torch.ones(3)
    for part in range(2):
        if rank.index == 4:
            dist.recv(block, src=3, tag=100 * rank.index + part)  # culprit
            continue
        if rank.index:
            dist.recv(block, src=rank.index - 1, tag=100 * (rank.index - 1) + part)
        dist.send(block, dst=rank.index + 1, tag=100 * rank.index + part)
    dist.barrier()


@mistake("unmatched message", culprits=(2,), also=("missing call",), ranks=4)
def one_worker_leaves_before_its_last_task(rank: Rank) -> None:
    task = torch.zeros(1)
    if rank.index == 0:
        for number in range(9):
            worker = 1 + number % 3
            dist.send(torch.tensor([number + 1.0]), dst=worker)
            dist.recv(task, src=worker)
    else:
        for _ in range(3):
            if rank.index == 2 and task.item() > 4:  # culprit
                break  # culprit
            dist.recv(task, src=0)  # culprit
            dist.send(task * 2, dst=0)
    dist.barrier()  # culprit


@mistake("unmatched message", culprits=(2,), ranks=4)
def a_worker_answers_under_another_tag(rank: Rank) -> None:
    """Its answer in the second step, to one that takes anybody's."""
    answer = torch.ones(4)
    for step in range(3):
        if rank.index == 0:
            for _ in range(3):
                dist.recv(answer, tag=5)
        else:
            dist.send(answer, dst=0, tag=6 if rank.index == 2 and step == 1 else 5)  # culprit
        dist.barrier()


@mistake("unmatched message", culprits=(1,), ranks=3)
def takes_one_gradient_less_than_come_back(rank: Rank) -> None:
    """A pipeline forward, then backward: the stage in the middle drops what its last batch sends it."""
    batch = torch.ones(2, 4)
    for _ in range(3):
        if rank.index > 0:
            dist.recv(batch, src=rank.index - 1)
        if rank.index < 2:
            dist.send(batch, dst=rank.index + 1)
    for number in range(3):
        if rank.index == 2:
            dist.send(batch, dst=1)
        elif rank.index == 1 and number < 2:  # culprit
            dist.recv(batch, src=2)  # culprit
    dist.barrier()  # culprit


@mistake("unmatched message", ranks=2)
def stages_that_count_their_batches_apart(rank: Rank) -> None:
    weights = torch.ones(4)
    dist.broadcast(weights, src=0)
    for _ in range(5 if rank.index == 0 else 4):  # culprit
        if rank.index == 0:
            dist.send(weights * 2, dst=1)  # culprit
        else:
            dist.recv(weights, src=0)  # culprit
    dist.barrier()  # culprit


@mistake("unmatched message", between=(0, 2), ranks=3)
def for_two_and_one_of_them_takes_it(rank: Rank) -> None:
    labels = torch.zeros(6, dtype=torch.long)
    if rank.index == 0:
        for peer in (1, 2):
            dist.send(labels, dst=peer)  # culprit
    if rank.index == 1:
        dist.recv(labels, src=0)
    dist.barrier()  # culprit


@mistake("unmatched message", culprits=(0,), ranks=4)
def a_row_taken_for_a_ring(rank: Rank) -> None:
    """The first has the last for its neighbour, which has none on that side."""
    mine, left, right = torch.ones(2), torch.zeros(2), torch.zeros(2)
    neighbours = [((rank.index - 1) % 4, left)]
    if rank.index < 3:
        neighbours.append((rank.index + 1, right))
    exchanges = []
    for neighbour, halo in neighbours:
        exchanges += [dist.P2POp(dist.isend, mine, neighbour), dist.P2POp(dist.irecv, halo, neighbour)]  # culprit
    for request in dist.batch_isend_irecv(exchanges):  # culprit
        request.wait()  # culprit
    dist.barrier()


@mistake("unmatched message", culprits=(3,), ranks=4)
def once_round_the_corner(rank: Rank) -> None:
    """In the last of three steps the last rank looks for a neighbour where it has none."""
    ghost = {side: torch.zeros(2) for side in (-1, 1)}
    for step in range(3):
        exchanges = []
        for side in (-1, 1):
            other = rank.index + side
            if 0 <= other < 4:
                exchanges.append(dist.P2POp(dist.isend, torch.ones(2), other))
            if 0 <= other < 4 or (side == 1 and rank.index == 3 and step == 2):
                exchanges.append(dist.P2POp(dist.irecv, ghost[side], other % 4))  # culprit
        for request in dist.batch_isend_irecv(exchanges):  # culprit
            request.wait()  # culprit
    dist.barrier()


@mistake("unmatched message", culprits=(1,), ranks=2)
def one_token_more_in_the_last_round(rank: Rank) -> None:
    """Each round ends with what the other one makes of it."""
    accepted = torch.zeros(1)
    for step in range(3):
        if rank.index == 1:
            for token in range(4 if step == 2 else 3):
                dist.send(torch.tensor([float(token)]), dst=0)  # culprit
        else:
            for _ in range(3):
                dist.recv(torch.empty(1), src=1)
        dist.broadcast(accepted, src=0)


@mistake("unmatched message", between=(0, 2), ranks=3)
def pages_counted_by_whom_they_are_for(rank: Rank) -> None:
    """The last reckons with two for each rank before it, and the first deals them out in turn."""
    if rank.index == 0:
        for page in range(4):
            dist.send(torch.ones(3), dst=1 + page % 2, tag=50 + page)  # culprit
    else:
        for turn in range(2):
            dist.recv(torch.empty(3), src=0, tag=50 + 2 * (rank.index - 1 + turn))  # culprit
    dist.barrier()


@mistake("unmatched message", culprits=(1,), also=("missing call",), ranks=3)
def a_micro_batch_that_a_stage_does_not_take(rank: Rank) -> None:
    """It goes on to the way back, which sends to whoever still waits to be rid of the last one."""
    first, last = rank.index == 0, rank.index == 2
    for micro in range(4):
        activation = torch.ones(4)
        if not first and not (rank.index == 1 and micro == 2):  # culprit
            dist.recv(activation, src=rank.index - 1)  # culprit
        if not last:
            dist.send(activation, dst=rank.index + 1)
    for _ in range(4):
        gradient = torch.ones(4)
        if not last:
            dist.recv(gradient, src=rank.index + 1)
        if not first:
            dist.send(gradient, dst=rank.index - 1)  # culprit


@mistake("unmatched message", culprits=(0,), also=("extra call",), ranks=3)
def a_micro_batch_that_a_stage_sends_twice(rank: Rank) -> None:
    first, last = rank.index == 0, rank.index == 2
    for micro in range(4):
        activation = torch.ones(4)
        if not first:
            dist.recv(activation, src=rank.index - 1)
        if not last:
            dist.send(activation, dst=rank.index + 1)
            if first and micro == 3:
                dist.send(activation, dst=1)  # culprit
    for _ in range(4):
        gradient = torch.ones(4)
        if not last:
            dist.recv(gradient, src=rank.index + 1)
        if not first:
            dist.send(gradient, dst=rank.index - 1)


@mistake("unmatched message", culprits=(1,), ranks=4)
def a_stage_that_turns_to_the_next_for_its_input(rank: Rank) -> None:
    for micro in range(4):
        activation = torch.ones(4)
        source = rank.index + 1 if rank.index == 1 and micro == 2 else rank.index - 1
        if rank.index > 0:
            dist.recv(activation, src=source)  # culprit
        if rank.index < 3:
            dist.send(activation, dst=rank.index + 1)
    dist.barrier()


@mistake("unmatched message", culprits=(1,), ranks=3)
def a_stage_that_counts_its_tags_from_one(rank: Rank) -> None:
    """Who takes what it sends tags as all do that take something there."""
    sends = []
    for micro in range(4):
        activation = torch.ones(4)
        if rank.index > 0:
            dist.irecv(activation, src=rank.index - 1, tag=micro).wait()
        if rank.index == 0:
            sends.append((activation, dist.isend(activation, dst=1, tag=micro)))
        elif rank.index == 1:
            sends.append((activation, dist.isend(activation, dst=2, tag=micro + 1)))  # culprit
    for _, work in sends:
        work.wait()
    dist.barrier()


@mistake("unmatched message", culprits=(2,), also=("missing call",), ranks=3)
def a_way_back_that_ends_a_micro_batch_early(rank: Rank) -> None:
    """Each micro-batch has a tag of its own: who waits for the last one, and hands it on, says that it was to come."""
    first, last = rank.index == 0, rank.index == 2
    for micro in range(4):
        activation = torch.ones(3)
        if not first:
            dist.recv(activation, src=rank.index - 1, tag=micro)
        if not last:
            dist.send(activation, dst=rank.index + 1, tag=micro)
    for micro in range(4):
        gradient = torch.ones(3)
        if not last:
            dist.recv(gradient, src=rank.index + 1, tag=100 + micro)
        elif micro == 3:
            break  # culprit
        if not first:
            dist.send(gradient, dst=rank.index - 1, tag=100 + micro)  # culprit
    dist.all_reduce(torch.ones(1))  # culprit


@mistake("size mismatch", culprits=(4,), ranks=5)
def the_last_of_the_line_is_narrower(rank: Rank) -> None:
    features = torch.zeros(2, 6 if rank.index == 4 else 8)  # culprit
    if rank.index > 0:
        dist.recv(features, rank.index - 1)  # culprit
    if rank.index < 4:
        dist.send(features + 1, rank.index + 1)


@mistake("unmatched message", culprits=(2,), ranks=4)
def gives_back_under_the_tag_of_the_way_there(rank: Rank) -> None:
    there, back = 3, 4
    value = torch.ones(2)
    if rank.index > 0:
        dist.recv(value, rank.index - 1, tag=there)
    if rank.index < 3:
        dist.send(value, rank.index + 1, tag=there)
        dist.recv(value, rank.index + 1, tag=back)
    if rank.index > 0:
        dist.send(value, rank.index - 1, tag=there if rank.index == 2 else back)  # culprit


@mistake("call ordering", culprits=(3,), ranks=4, also=("unmatched message",))
def takes_part_where_it_should_receive(rank: Rank) -> None:
    """The others have been given the new weights by hand."""
    weights = torch.zeros(3)
    if rank.index == 0:
        for other in (1, 2, 3):
            dist.send(torch.ones(3), other)
    elif rank.index == 3:
        dist.broadcast(weights, 0)  # culprit
    else:
        dist.recv(weights, 0)


@mistake("unmatched message", culprits=(1,), also=("missing call",), ranks=3)
def nothing_changed_so_no_farewell(rank: Rank) -> None:
    """That rank 2 sends with this tag once, too, says nothing of how often rank 1 is to."""
    changed = False
    if rank.index == 2:
        dist.send(torch.ones(2), 0, tag=7)
    if rank.index == 1:
        dist.send(torch.ones(5), 0, tag=7)
        dist.send(torch.ones(4), 0, tag=3)
    if rank.index == 0:
        dist.recv(torch.ones(2), 2, tag=7)
        dist.recv(torch.ones(5), 1, tag=7)
        dist.recv(torch.ones(4), 1, tag=3)
    if rank.index == 1 and not changed:  # culprit
        return  # culprit
    if rank.index == 1:
        dist.send(torch.ones(1), 0, tag=7)  # culprit
    if rank.index == 0:
        dist.recv(torch.ones(1), 1, tag=7)


@mistake("unmatched message", culprits=(2,), also=("missing call",), ranks=3)
def a_worker_that_stops_after_its_warm_up_and_ten(rank: Rank) -> None:
    """Rank 1 has taken one more from it than from rank 0, since it was warmed up: it takes turns nonetheless."""
    gradient = torch.ones(6)
    if rank.index == 2:
        dist.send(gradient, 1, tag=4)
    elif rank.index == 1:
        dist.recv(gradient, 2, tag=4)
    for step in range(15):
        dist.all_reduce(gradient)
        if rank.index == 2 and step == 10:  # culprit
            return  # culprit
        if rank.index == 2:
            dist.send(gradient, 1, tag=4)  # culprit
        if rank.index == 1:
            dist.recv(gradient, 2, tag=4)
        if rank.index == 0:
            dist.send(gradient, 1, tag=4)
        if rank.index == 1:
            dist.recv(gradient, 0, tag=4)


@mistake("unmatched message", culprits=(0,), ranks=4)
def tells_only_some_that_it_is_over(rank: Rank) -> None:
    """Eight tasks for three: those that had one more in the last round are told."""
    tasks, over = list(range(8)), -1
    task = torch.zeros(1)
    if rank.index == 0:
        for number, each in enumerate(tasks):
            dist.send(task.fill_(each), 1 + number % 3)
        for other in (1, 2, 3)[: len(tasks) % 3]:  # culprit
            dist.send(task.fill_(over), other)  # culprit
        return  # culprit
    while int(task) != over:
        dist.recv(task, 0)


@mistake("unmatched message", culprits=(2,), also=("missing call",), ranks=4)
def has_nothing_to_say_in_one_round(rank: Rank) -> None:
    news = torch.ones(3)
    for turn in range(3):
        if rank.index == 0:
            for other in (1, 2, 3):
                dist.recv(news, other)
            for other in (1, 2, 3):
                dist.send(news, other)
            continue
        change = 0.0 if rank.index == 2 and turn == 1 else 0.5
        if not change:  # culprit
            continue  # culprit
        dist.send(news * change, 0)  # culprit
        dist.recv(news, 0)
