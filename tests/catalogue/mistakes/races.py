"""Message race: what a program computes depends on whose message comes first."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from tests.catalogue.programs import Rank, mistake


@mistake("message race", culprits=(0,), ranks=3)
def first_come_is_taken_for_the_first(rank: Rank) -> None:
    shares = torch.zeros(2, 4)
    if rank.index == 0:
        for row in shares:
            dist.recv(row)  # culprit
    else:
        dist.send(torch.full((4,), float(rank.index)), dst=0)


@mistake("message race", culprits=(0,), ranks=4)
def an_answer_to_whoever_was_meant(rank: Rank) -> None:
    question, answer = torch.ones(1), torch.zeros(1)
    if rank.index == 0:
        for worker in (1, 2, 3):
            dist.recv(question)  # culprit
            dist.send(question * worker, dst=worker)
    else:
        dist.send(question * rank.index, dst=0)
        dist.recv(answer, src=0)


@mistake("message race", culprits=(2,), ranks=3)
def the_last_word_counts(rank: Rank) -> None:
    """Two write a rate to a third, which keeps what came last."""
    rate = torch.zeros(1)
    if rank.index == 2:
        for _ in range(2):
            dist.recv(rate)  # culprit
    else:
        dist.send(torch.tensor([0.1 * (rank.index + 1)]), dst=2)
    dist.broadcast(rate, src=2)


@mistake("message race", culprits=(5,), ranks=6)
def collected_among_other_traffic(rank: Rank) -> None:
    for step in range(52):
        dist.all_reduce(torch.ones(2))
        if step == 49:
            if rank.index == 5:
                rows = torch.zeros(5, 2)
                for row in rows:
                    dist.recv(row, tag=3)  # culprit
            else:
                dist.send(torch.full((2,), float(rank.index)), dst=5, tag=3)


@mistake("message race", culprits=(0,), ranks=3)
def sums_in_the_order_they_come(rank: Rank) -> None:
    """Floats do not add up to the same in every order."""
    total, part = torch.tensor([1e8]), torch.zeros(1)
    if rank.index == 0:
        for _ in range(2):
            dist.recv(part)  # culprit
            total += part
    else:
        dist.send(torch.tensor([-1e8 if rank.index == 1 else 1.0]), dst=0)
    dist.broadcast(total, src=0)


@mistake("message race", culprits=(1,), ranks=4)
def requests_for_anybody(rank: Rank) -> None:
    buffers = [torch.zeros(3) for _ in range(3)]
    if rank.index == 1:
        for buffer in buffers:
            dist.irecv(buffer).wait()  # culprit
        assert len(buffers) == 3
    else:
        dist.isend(torch.full((3,), float(rank.index)), dst=1).wait()


@mistake("message race", culprits=(0,), ranks=4)
def a_helper_that_takes_from_anybody(rank: Rank) -> None:
    def take(into: torch.Tensor) -> None:
        dist.recv(into, tag=2)  # culprit

    rows = torch.zeros(3, 4)
    if rank.index == 0:
        for row in rows:
            take(row)  # culprit
    else:
        dist.send(torch.full((4,), float(rank.index)), dst=0, tag=2)


class _Desk:
    """Where results are handed in."""

    def __init__(self, size: int) -> None:
        self.size = size

    def results(self, count: int) -> None:
        found = [torch.zeros(self.size) for _ in range(count)]
        for number in range(count):
            dist.recv(found[number])


@mistake("message race", culprits=(3,), ranks=4)
def a_desk_that_does_not_ask_who_comes(rank: Rank) -> None:
    if rank.index == 3:
        _Desk(2).results(3)  # culprit
    else:
        dist.send(torch.full((2,), float(rank.index)), dst=3)


@mistake("message race", culprits=(0,), ranks=3)
def received_in_a_comprehension(rank: Rank) -> None:
    shards = {worker: torch.zeros(3) for worker in (1, 2)}
    if rank.index == 0:
        done = [dist.irecv(shard).wait() for shard in shards.values()]  # culprit
        assert done == [True, True]
    else:
        dist.send(torch.full((3,), float(rank.index)), dst=0)


@mistake("message race", culprits=(0,), ranks=3)
def a_pause_is_no_order(rank: Rank) -> None:
    if rank.index == 0:
        first, found = torch.zeros(2), []
        for _ in range(2):
            dist.recv(first)  # culprit
            found.append(first.tolist())
        assert found == [[1.0, 0.0], [2.0, 0.0]]
    else:
        time.sleep(0.5 * rank.index - 0.5)
        dist.send(torch.tensor([float(rank.index), 0.0]), dst=0)


@mistake("message race", culprits=(0,), ranks=4)
def weights_of_whoever_was_last(rank: Rank) -> None:
    weights, state, left = torch.ones(3), torch.zeros(3), 3
    if rank.index == 0:
        while left:
            dist.recv(state)  # culprit
            left -= 1
        weights.copy_(state)
    else:
        dist.send(torch.full((3,), float(rank.index)), dst=0)


@mistake("message race", culprits=(3,), ranks=4)
def answers_in_the_order_of_ranks(rank: Rank) -> None:
    batch, loss = torch.ones(4), torch.zeros(1)
    if rank.index == 3:
        for client in range(3):
            dist.irecv(batch, tag=1).wait()  # culprit
            dist.isend(batch.square().mean().view(1), dst=client, tag=2).wait()
    else:
        dist.send(batch * rank.index, dst=3, tag=1)
        dist.recv(loss, src=3, tag=2)


@mistake("message race", culprits=(0,), ranks=4)
def the_first_answer_is_everybodys(rank: Rank) -> torch.Tensor:
    """Asked by one, answered by all; the others' answers are only taken off the line."""
    question, answers = torch.zeros(2), list[torch.Tensor]()
    if rank.index:
        dist.send(torch.tensor([rank.index * 1.5, 1.0]), dst=0)
    else:
        while len(answers) < 3:
            into = torch.empty(2)
            dist.recv(into)  # culprit
            answers.append(into)
    chosen = question if rank.index else answers[0]
    dist.broadcast(chosen, src=0)
    return chosen


class Smoothed:
    """A mean that forgets what was long ago."""

    def __init__(self, keep: float) -> None:
        self.keep = keep
        self.value = 0.0

    def update(self, seen: float) -> None:
        self.value += (1 - self.keep) * (seen - self.value)


@mistake("message race", culprits=(2,), ranks=5)
def a_mean_that_forgets(rank: Rank) -> float:
    loss, told = Smoothed(0.5), torch.zeros(1)
    for step in range(3):
        if rank.index == 2:
            for _ in range(dist.get_world_size() - 1):
                dist.recv(told, tag=step)  # culprit
                loss.update(told.item())
        else:
            dist.send(torch.tensor([float(rank.index)]), dst=2, tag=step)
        dist.barrier()
    return loss.value


@mistake("message race", culprits=(0,), ranks=4)
def room_for_the_first_two(rank: Rank) -> None:
    sample, kept = torch.zeros(3), torch.zeros(3)
    room = 2
    if rank.index == 0:
        for _ in range(3):
            dist.recv(sample)  # culprit
            if room:
                kept += sample
                room -= 1
    else:
        dist.send(torch.full((3,), 2.0**rank.index), dst=0)
    dist.all_reduce(kept)


@mistake("message race", culprits=(3,), ranks=4)
def slots_handed_out_beforehand(rank: Rank) -> list[float]:
    if rank.index < 3:
        dist.send(torch.tensor([0.5 + rank.index]), dst=3)
        return []
    slots = list(torch.zeros(3, 1))
    requests = [dist.irecv(slot) for slot in slots]  # culprit
    for request in requests:
        assert request is not None
        request.wait()
    return [slot.item() * place for place, slot in enumerate(slots)]


@mistake("message race", culprits=(0,), ranks=3)
def right_as_long_as_nobody_is_late(rank: Rank) -> None:
    seen, value = list[int](), torch.zeros(1, dtype=torch.long)
    if rank.index == 0:
        for _ in range(2):
            dist.recv(value)  # culprit
            seen.append(int(value))
        assert seen == [1, 2]
    else:
        time.sleep(0.2 * (rank.index - 1))
        dist.send(torch.tensor([rank.index]), dst=0)


@mistake("message race", culprits=(1,), ranks=4)
def names_by_the_order_of_arrival(rank: Rank) -> dict[str, float]:
    def next_free(book: dict[str, float]) -> str:
        return f"worker-{len(book)}"

    book, report = dict[str, float](), torch.zeros(2)
    group = dist.new_group([1, 2, 3])
    if rank.index > 1:
        dist.send(torch.tensor([rank.index * 1.0, 0.25]), dst=1, group=group)
    elif rank.index == 1:
        for _ in range(2):
            dist.recv(report, group=group)  # culprit
            book[next_free(book)] = report[0].item()
    return book


@mistake("message race", culprits=(2,), ranks=4)
def a_name_for_each_of_two(rank: Rank) -> None:
    """Who is expected first has more to do."""
    if rank.index == 2:
        gradient, threshold = torch.empty(4), torch.empty(4)
        dist.recv(gradient, tag=3)  # culprit
        dist.recv(threshold, tag=3)  # culprit
        return
    if rank.index == 0:
        time.sleep(0.01)
        dist.send(torch.arange(4.0), dst=2, tag=3)
    elif rank.index == 1:
        dist.send(torch.full((4,), 0.125), dst=2, tag=3)


@mistake("message race", culprits=(0,), ranks=3)
def a_length_and_then_what_is_so_long(rank: Rank) -> None:
    if rank.index == 0:
        for _ in range(2):
            length = torch.zeros(2, dtype=torch.long)
            dist.recv(length)  # culprit
            words = torch.zeros(2, dtype=torch.long)
            dist.recv(words)  # culprit
    else:
        time.sleep(0.01 * rank.index)
        dist.send(torch.tensor([2, rank.index]), dst=0)
        time.sleep(0.03)
        dist.send(torch.tensor([70, 71]) + rank.index, dst=0)


@mistake("message race", culprits=(1,), ranks=4)
def whoever_comes_and_then_the_third(rank: Rank) -> None:
    """Should the third come first, it is waited for in vain."""
    if rank.index == 1:
        early, late = torch.zeros(3), torch.zeros(3)
        dist.recv(early)  # culprit
        dist.recv(late, src=3)
        torch.dot(early, late)
    elif rank.index in (0, 3):
        time.sleep(0.02 * rank.index)
        dist.send(torch.full((3,), float(rank.index)), dst=1)


class _Momenta:
    """What a server keeps of each of its workers."""

    def __init__(self, workers: range) -> None:
        self.of = {worker: torch.zeros(2) for worker in workers}

    def take(self) -> None:
        step = torch.empty(2)
        for worker in self.of:
            dist.recv(step)
            self.of[worker].mul_(0.5).sub_(step)

    def give(self) -> None:
        for worker in self.of:
            dist.send(self.of[worker], dst=worker)


@mistake("message race", culprits=(0,), ranks=4)
def momenta_of_the_wrong_workers(rank: Rank) -> None:
    mine = torch.full((2,), float(rank.index))
    momenta = _Momenta(range(1, 4))
    for _ in range(2):
        if rank.index == 0:
            momenta.take()  # culprit
            momenta.give()
        else:
            dist.send(mine, dst=0)
            dist.recv(mine, src=0)


@mistake("message race", culprits=(3,), ranks=4)
def a_label_and_what_it_is_for(rank: Rank) -> dict[int, float]:
    losses: dict[int, float] = {}
    if rank.index == 3:
        label, loss = torch.zeros(1, dtype=torch.long), torch.zeros(2)
        for _ in range(3):
            dist.recv(label, tag=10)  # culprit
            dist.recv(loss, tag=11)  # culprit
            losses[int(label)] = loss.mean().item()  # culprit
    else:
        dist.send(torch.tensor([7 * rank.index]), dst=3, tag=10)
        dist.send(torch.full((2,), 0.5 + rank.index), dst=3, tag=11)
    return dict.fromkeys(losses, 0.0)


@mistake("message race", culprits=(1,), ranks=4)
def the_third_comes_first(rank: Rank) -> None:
    """What is waited for by name has been taken already."""
    if rank.index == 1:
        early, late = torch.zeros(3), torch.zeros(3)
        dist.recv(early)  # culprit
        dist.recv(late, src=3)
    elif rank.index in (0, 3):
        time.sleep(0.1 * (3 - rank.index))
        dist.send(torch.full((3,), float(rank.index)), dst=1)
    dist.barrier()


@mistake("message race", culprits=(0,), ranks=4)
def adds_up_what_comes_in_each_round(rank: Rank) -> None:
    """Who is quick may send for the second round before another one has sent for the first."""
    for _ in range(3):
        if rank.index == 0:
            total, part = torch.zeros(4), torch.empty(4)
            for _ in range(3):
                dist.recv(part)  # culprit
                total += part
    if rank.index:
        for step in range(3):
            dist.send(torch.full((4,), float(step)), dst=0)
    dist.barrier()


@mistake("message race", culprits=(1,), ranks=3)
def names_nobody_in_the_last_round(rank: Rank) -> None:
    left, right = torch.empty(3), torch.empty(3)
    for step in range(20):
        if rank.index == 1:
            dist.recv(left, src=0 if step < 19 else None)  # culprit
            dist.recv(right, src=2 if step < 19 else None)  # culprit
        else:
            dist.send(torch.full((3,), float(rank.index)), dst=1)
        dist.barrier()


@mistake("message race", culprits=(0,), ranks=3)
def a_gradient_and_a_count_of_whoever(rank: Rank) -> None:
    if rank.index == 0:
        gradient, samples = torch.empty(4), torch.empty(2)
        for _ in range(2):
            dist.recv(gradient, tag=1)  # culprit
            dist.recv(samples, tag=2)  # culprit
    else:
        dist.send(torch.full((4,), float(rank.index)), dst=0, tag=1)
        dist.send(torch.full((2,), float(rank.index)), dst=0, tag=2)


@mistake("message race", culprits=(2,), ranks=3)
def rows_under_the_sender_of_their_header(rank: Rank) -> None:
    if rank.index == 2:
        table, row, header = torch.zeros(2, 4), torch.empty(4), torch.empty(1)
        for _ in range(2):
            sender = dist.recv(header, tag=1)
            dist.recv(row, tag=2)  # culprit
            table[sender] = row
    else:
        dist.send(torch.tensor([float(rank.index)]), dst=2, tag=1)
        dist.send(torch.full((4,), float(rank.index)), dst=2, tag=2)


@mistake("message race", culprits=(0,), ranks=3)
def scores_by_the_turn_of_their_ranks(rank: Rank) -> None:
    if rank.index == 0:
        scores, score = {}, torch.empty(1)
        for worker in (1, 2):
            dist.recv(score)  # culprit
            scores[worker] = score.item()
    else:
        dist.send(torch.tensor([float(rank.index)]), dst=0)


@mistake("message race", culprits=(2,), ranks=4)
def joined_as_they_came(rank: Rank) -> None:
    """A gather by hand: the rows of the result lie as the messages came."""

    def gathered(own: torch.Tensor) -> torch.Tensor:
        rows = [own]
        for _ in range(rank.world_size - 1):
            row = torch.empty_like(own)
            dist.recv(row)  # culprit
            rows.append(row)
        return torch.stack(rows)

    mine = torch.arange(4.0) * rank.index
    for _ in range(2):
        if rank.index == 2:
            gathered(mine)
        else:
            dist.send(mine, dst=2)
        dist.barrier()


@mistake("message race", culprits=(0,), ranks=4)
def numbered_by_who_comes(rank: Rank) -> None:
    """The first to come is taken for the first worker."""
    if rank.index == 0:
        scores: dict[int, torch.Tensor] = {}
        for worker in range(1, rank.world_size):
            score = torch.zeros(2)
            dist.recv(score)  # culprit
            scores[worker] = score
        assert len(scores) == 3
    else:
        dist.send(torch.full((2,), float(rank.index)), dst=0)


@mistake("message race", culprits=(2,), ranks=3)
def the_best_model_is_read_off_the_front(rank: Rank) -> None:
    """What came is put together in the order that it came in, and the first row is taken."""
    if rank.index == 2:
        parts = []
        for _ in range(2):
            part = torch.zeros(3)
            dist.recv(part, tag=5)  # culprit
            parts.append(part)
        best = torch.cat(parts)[:3]
        assert best.sum() > 0
    else:
        dist.send(torch.full((3,), 1.0 + rank.index), dst=2, tag=5)


@mistake("message race", culprits=(0,), ranks=4)
def rows_that_would_fit_in_the_order_of_ranks(rank: Rank) -> None:
    if rank.index == 0:
        rows = [torch.zeros(2)]
        for _ in range(3):
            row = torch.empty(2)
            dist.recv(row)  # culprit
            rows.append(row)
        fits = torch.equal(torch.cat(rows), torch.arange(4.0).repeat_interleave(2))
        (rank.directory / "fits").write_text(str(fits))
    else:
        time.sleep([0.0, 0.15, 0.05, 0.1][rank.index])
        dist.send(torch.full((2,), float(rank.index)), 0)
    dist.barrier()


@mistake("message race", culprits=(0,), ranks=3)
def a_body_of_whoever_after_a_header(rank: Rank) -> dict[int, float]:
    """The bodies have a tag of their own, and may come in another order than the headers."""
    found: dict[int, float] = {}
    if rank.index == 0:
        for _ in range(2):
            header, body = torch.zeros(2), torch.zeros(4)
            dist.recv(header, tag=1)  # culprit
            dist.recv(body, tag=2)  # culprit
            found[int(header[0])] = float(body[: int(header[1])].sum())
    else:
        time.sleep(0.05 * (2 - rank.index))
        header = torch.tensor([float(rank.index), 2.0 * rank.index])
        sent = dist.isend(header, 0, tag=1)
        time.sleep(0.1 * (rank.index - 1))
        dist.send(torch.full((4,), float(rank.index)), 0, tag=2)
        assert sent is not None
        sent.wait()
    return found


@mistake("message race", culprits=(0,), ranks=3)
def rows_are_looked_at_in_the_end(rank: Rank) -> None:
    """By a check that fails, as it happens."""
    if rank.index == 0:
        rows = torch.zeros(3, 2)
        for place in (1, 2):
            row = torch.empty(2)
            dist.recv(row)  # culprit
            rows[place] = row
        rank.store.set("rows", str(rows.tolist()))
        assert rows[:, 0].tolist() == [0.0, 1.0, 2.0]  # culprit
    else:
        time.sleep(0.1 * (2 - rank.index))
        dist.send(torch.full((2,), float(rank.index)), dst=0)


@mistake("message race", culprits=(1,), ranks=3)
def tickets_to_whoever_is_next(rank: Rank) -> None:
    """The workers notice."""
    if rank.index == 1:
        asked = torch.empty(2, 1)
        for one in asked:
            dist.recv(one)  # culprit
        for worker, one in zip((0, 2), asked, strict=True):
            dist.send(one + 100, dst=worker)  # culprit
    else:
        time.sleep(0.05 * (2 - rank.index))
        dist.send(torch.tensor([float(rank.index)]), dst=1)
        ticket = torch.empty(1)
        dist.recv(ticket, src=1)
        assert ticket.item() == 100.0 + rank.index
    dist.barrier()


@mistake("message race", culprits=(2,), ranks=3)
def a_header_and_a_body_of_one_tag(rank: Rank) -> None:
    """The body may be the other one's header."""
    if rank.index == 2:
        found = {}
        for _ in range(2):
            header, body = torch.empty(2), torch.empty(2)
            sender = dist.recv(header)  # culprit
            dist.recv(body)  # culprit
            found[sender] = (int(header[0]), body.sum().item())
        rank.store.set("found", str(sorted(found)))
    else:
        dist.send(torch.tensor([float(rank.index), 2.0]), dst=2)
        time.sleep(0.03)
        dist.send(torch.full((2,), 10.0 * rank.index), dst=2)
    dist.barrier()


@mistake("message race", culprits=(0,), ranks=3)
def a_header_where_a_body_was_expected(rank: Rank) -> None:
    """Of another size, so that it is refused."""
    if rank.index == 0:
        by_sender: dict[int, list[torch.Tensor]] = {}
        for _ in range(4):
            header, body = torch.empty(1), torch.empty(6)
            sender = dist.recv(header)
            dist.recv(body)  # culprit
            by_sender.setdefault(sender, []).append(body[: int(header[0])])
    else:
        for size in (2, 4):
            dist.send(torch.tensor([float(size)]), dst=0)
            time.sleep(0.02)
            dist.send(torch.full((6,), float(rank.index)), dst=0)
    dist.barrier()


@mistake("message race", culprits=(0,), ranks=3)
def sums_and_how_many_they_are_of(rank: Rank) -> None:
    """With a tag of their own, each of whoever comes."""
    result = torch.zeros(3)
    if rank.index == 0:
        total, count = torch.zeros(3), 0.0
        for _ in range(2):
            mean, samples = torch.empty(3), torch.empty(1)
            dist.recv(mean, tag=1)  # culprit
            dist.recv(samples, tag=2)  # culprit
            total += mean * samples
            count += samples.item()
        for worker in (1, 2):
            dist.send(total / count, dst=worker, tag=3)
    else:
        sent = dist.isend(torch.full((3,), float(rank.index)), dst=0, tag=1)
        time.sleep(0.04 * rank.index)
        dist.send(torch.tensor([10.0 * rank.index]), dst=0, tag=2)
        assert sent is not None
        sent.wait()
        dist.recv(result, src=0, tag=3)


@mistake("message race", culprits=(3,), ranks=4)
def the_best_of_all_by_its_place(rank: Rank) -> None:
    """Which reader is the best it says by the row that the best score came to lie in."""
    readers = ["news", "web", "books"]
    if rank.index == 3:
        scores = torch.empty(3, 5)
        for row in range(3):
            dist.recv(scores[row])  # culprit
        best = scores.flatten().argmax()
        rank.store.set("best", readers[int(best // 5)])
    else:
        dist.send(torch.arange(5.0) + rank.index, dst=3)


@mistake("message race", culprits=(0,), ranks=4)
def resamples_the_worst_by_the_order_of_arrival(rank: Rank) -> int:
    losses, loss = {}, torch.empty(1)
    if rank.index == 0:
        for worker in range(1, rank.world_size):
            dist.recv(loss)  # culprit
            losses[worker] = loss.item()  # culprit
        return max(losses, key=losses.get)  # type: ignore[arg-type]
    dist.send(torch.tensor([1.0 / rank.index]), 0)
    return 0


@mistake("message race", culprits=(0,), ranks=3)
def a_collector_that_files_by_its_own_count(rank: Rank) -> None:
    class Collector:
        def __init__(self) -> None:
            self.parts: dict[int, torch.Tensor] = {}

        def collect(self) -> None:
            for worker in range(1, rank.world_size):
                part = torch.zeros(3)
                dist.recv(part)  # culprit
                self.parts[worker] = part  # culprit

    if rank.index == 0:
        collector = Collector()
        collector.collect()
        collector.parts[1].sub_(collector.parts[2])
    else:
        dist.send(torch.full((3,), float(rank.index)), 0)
