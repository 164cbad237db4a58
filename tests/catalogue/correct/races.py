"""Messages from anybody, several of which may come first, and nothing depends on which does."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from tests.catalogue.programs import Rank, correct


@correct(ranks=4)
def kept_under_what_the_message_says(rank: Rank) -> None:
    message, found = torch.zeros(3), {}
    if rank.index == 0:
        for _ in range(3):
            dist.recv(message)
            found[int(message[0])] = message[1:].clone()
        assert {who: rest.tolist() for who, rest in found.items()} == {who: [who, 1] for who in (1, 2, 3)}
    else:
        dist.send(torch.tensor([rank.index, rank.index, 1.0]), dst=0)


@correct(ranks=4)
def a_helper_says_who_it_was(rank: Rank) -> None:
    def take(into: torch.Tensor) -> int:
        return dist.recv(into)

    rows, message = torch.zeros(3, 2), torch.zeros(2)
    if rank.index == 0:
        for _ in rows:
            who = take(message)
            rows[who - 1] = message
        assert rows[:, 0].tolist() == [1, 2, 3]
    else:
        dist.send(torch.full((2,), float(rank.index)), dst=0)


@correct(ranks=4)
def put_in_order_when_all_have_come(rank: Rank) -> None:
    rows = torch.zeros(3, 2)
    if rank.index == 0:
        for number in range(3):
            dist.recv(rows[number])
        rows = rows[rows[:, 0].argsort()]
        assert rows[:, 0].tolist() == [1, 2, 3]
    else:
        dist.send(torch.tensor([rank.index, 0.5]), dst=0)


@correct(ranks=3)
def one_speaks_and_anybody_might(rank: Rank) -> None:
    words = torch.zeros(4, 2)
    if rank.index == 0:
        for number, word in enumerate(words):
            dist.recv(word)
            assert word[0].item() == number
    elif rank.index == 2:
        for number in range(4):
            dist.send(torch.tensor([float(number), 7.0]), dst=0)


@correct(ranks=4)
def a_barrier_parts_those_who_send(rank: Rank) -> None:
    rows = torch.zeros(3, 2)
    for number in range(3):
        if rank.index == number + 1:
            dist.send(torch.full((2,), float(number)), dst=0)
        elif rank.index == 0:
            dist.recv(rows[number])
        dist.barrier()
    if rank.index == 0:
        for number, row in enumerate(rows):
            assert row[0].item() == number


@correct(ranks=4)
def the_word_is_handed_on(rank: Rank) -> None:
    """Who has spoken tells the next: they come in order."""
    turn, rows = torch.zeros(1), torch.zeros(3, 2)
    if rank.index == 0:
        for row in rows:
            dist.recv(row)
    else:
        if rank.index > 1:
            dist.recv(turn, src=rank.index - 1, tag=5)
        dist.send(torch.full((2,), float(rank.index)), dst=0)
        if rank.index < 3:
            dist.send(turn, dst=rank.index + 1, tag=5)


@correct(ranks=3)
def a_key_of_the_store_parts_those_who_send(rank: Rank) -> None:
    rows = torch.zeros(2, 3)
    if rank.index == 0:
        for number, row in enumerate(rows):
            dist.recv(row)
            rank.store.set(f"heard/{number}", "yes")
    else:
        if rank.index == 2:
            rank.store.wait(["heard/0"])
        dist.send(torch.full((3,), float(rank.index)), dst=0)


@correct(ranks=3)
def a_file_parts_those_who_send(rank: Rank) -> None:
    flag, rows = rank.directory / "heard", torch.zeros(2, 3)
    if rank.index == 0:
        for row in rows:
            dist.recv(row)
            flag.touch()
    else:
        while rank.index == 2 and not flag.exists():
            pass
        dist.send(torch.full((3,), float(rank.index)), dst=0)


@correct(ranks=4)
def results_by_the_number_of_their_task(rank: Rank) -> None:
    """A queue of work: who is done tells which task it was, and gets the next."""
    task, results = torch.full((2,), -1.0), torch.zeros(8)
    if rank.index == 0:
        for number in range(8 + 3):
            worker = dist.recv(task, tag=1)
            if task[0] >= 0:
                results[int(task[0])] = task[1]
            dist.send(torch.tensor([float(number if number < 8 else -1), 0.0]), dst=worker, tag=2)
        assert results.tolist() == [number**2 for number in range(8)]
        return
    while True:
        dist.send(task, dst=0, tag=1)
        dist.recv(task, src=0, tag=2)
        if task[0] < 0:
            return
        task[1] = task[0] ** 2


@correct(ranks=4)
def the_largest_of_all(rank: Rank) -> None:
    part, best = torch.zeros(2), torch.full((2,), -1.0)
    if rank.index == 0:
        for _ in range(3):
            dist.recv(part)
            best = torch.maximum(best, part)
        assert best.tolist() == [3, -1]
    else:
        dist.send(torch.tensor([float(rank.index), -float(rank.index)]), dst=0)


@correct(ranks=4)
def all_say_the_same(rank: Rank) -> None:
    """Whoever is the last: each of them has computed it for itself."""
    rate = torch.zeros(2)
    if rank.index == 0:
        for _ in range(3):
            dist.recv(rate)
    else:
        dist.send(torch.tensor([0.5, 0.25]), dst=0)
    dist.broadcast(rate, src=0)
    assert rate.tolist() == [0.5, 0.25]


@correct(ranks=4)
def each_says_that_it_is_done_in_a_place_of_its_own(rank: Rank) -> None:
    words = [torch.zeros(1) for _ in range(3)]
    if rank.index == 0:
        for word in words:
            dist.recv(word)
    else:
        dist.send(torch.tensor([float(rank.index)]), dst=0)


@correct(ranks=4)
def rows_that_are_dealt_out_anew(rank: Rank) -> None:
    """Everybody gives away a row, and gets one: whose, does not matter."""
    row = torch.full((2,), float(rank.index))
    if rank.index == 0:
        hand = [torch.zeros(2) for _ in range(3)]
        for card in hand:
            dist.recv(card, tag=1)
        for card, player in zip(hand, range(1, 4), strict=True):
            dist.send(card, dst=player, tag=2)
    else:
        dist.send(row, dst=0, tag=1)
        dist.recv(row, src=0, tag=2)


@correct(ranks=4)
def parts_that_a_helper_collects(rank: Rank) -> None:
    def collected(count: int) -> list[torch.Tensor]:
        part, parts = torch.zeros(2), []
        for _ in range(count):
            dist.recv(part)
            parts.append(part.clone())
        return parts

    if rank.index == 0:
        assert sum(part[0].item() for part in collected(3)) == 6
    else:
        dist.send(torch.full((2,), float(rank.index)), dst=0)


@correct(ranks=3)
def in_one_order_or_the_other(rank: Rank) -> None:
    rows = torch.zeros(2, 2)
    if rank.index == 0:
        for row in rows:
            dist.recv(row)
        assert rows.tolist() == [[1, 1], [2, 2]] or rows.tolist() == [[2, 2], [1, 1]]
    else:
        dist.send(torch.full((2,), float(rank.index)), dst=0)


@correct(ranks=4)
def parts_of_a_table_that_is_averaged(rank: Rank) -> None:
    table = torch.zeros(4, 2)
    theirs = table[1:]
    if rank.index == 0:
        for row in theirs:
            dist.recv(row)
        assert table.mean(0).tolist() == [1.5, 1.5]
    else:
        dist.send(torch.full((2,), float(rank.index)), dst=0)


@correct(ranks=4)
def a_loss_from_whoever_is_ready(rank: Rank) -> None:
    """Each place is added up in the round that fills it."""
    losses, total = torch.zeros(3, 2), torch.zeros(2)
    if rank.index == 0:
        for number in range(3):
            dist.irecv(losses[number]).wait()
            total += losses[number]
        assert total.tolist() == [6, 3]
    else:
        dist.send(torch.tensor([rank.index, 1.0]), dst=0)


@correct(ranks=4)
def the_last_has_heard_of_all_the_others(rank: Rank) -> None:
    """Two may come first; the third waits for both, and what it says counts."""
    rate, token = torch.zeros(2), torch.zeros(1)
    if rank.index == 0:
        for _ in range(3):
            dist.recv(rate)
        scaled = rate * 2
        assert scaled.tolist() == [6, 6]
    else:
        for other in (1, 2) if rank.index == 3 else ():
            dist.recv(token, src=other, tag=1)
        dist.send(torch.full((2,), float(rank.index)), dst=0)
        if rank.index < 3:
            dist.send(token, dst=3, tag=1)


@correct(ranks=4)
def the_best_answer_is_everybodys(rank: Rank) -> torch.Tensor:
    """Whoever answers first: the best counts, and of two the one of the lower rank."""
    best = (-1.0, 0.0)
    if rank.index:
        dist.send(torch.tensor([float(rank.index % 2), -float(rank.index)]), dst=0)
    else:
        for _ in range(3):
            answer = torch.empty(2)
            dist.recv(answer)
            best = max(best, (answer[0].item(), answer[1].item()))
    chosen = torch.tensor(best)
    dist.broadcast(chosen, src=0)
    assert chosen.tolist() == [1, -1]
    return chosen


@correct(ranks=5)
def a_mean_of_all(rank: Rank) -> float:
    total, told = 0.0, torch.zeros(1)
    for step in range(3):
        if rank.index == 2:
            for _ in range(dist.get_world_size() - 1):
                dist.recv(told, tag=step)
                total += told.item() / 3
        else:
            dist.send(torch.tensor([rank.index / 7]), dst=2, tag=step)
        dist.barrier()
    return total


@correct(ranks=4)
def room_for_all(rank: Rank) -> None:
    sample, kept = torch.zeros(3), torch.zeros(3)
    room = 3
    if rank.index == 0:
        for _ in range(3):
            dist.recv(sample)
            if room:
                kept += sample
                room -= 1
    else:
        dist.send(torch.full((3,), 2.0**rank.index), dst=0)
    dist.all_reduce(kept)
    assert kept.tolist() == [14, 14, 14]


@correct(ranks=4)
def slots_that_are_sorted_out_afterwards(rank: Rank) -> list[float]:
    if rank.index < 3:
        dist.send(torch.tensor([0.5 + rank.index]), dst=3)
        return []
    slots = torch.zeros(3, 1)
    requests = [dist.irecv(slot) for slot in slots]
    for request in requests:
        assert request is not None
        request.wait()
    return sorted(slot.item() for slot in slots)


@correct(ranks=4)
def how_long_each_took(rank: Rank) -> list[float]:
    """What a clock says is never the same, whoever comes first."""
    value, took = torch.zeros(1), list[float]()
    if rank.index:
        dist.send(torch.tensor([float(rank.index)]), dst=0)
    else:
        for _ in range(3):
            began = time.perf_counter()
            dist.recv(value)
            took.append(time.perf_counter() - began)
    return took


@correct(ranks=4)
def the_last_who_comes_turns_off_the_light(rank: Rank) -> int:
    """Whoever asks is given the next piece, until there is none: who gets which is nobody's business."""
    piece, mine = torch.zeros(1), 0
    if rank.index == 0:
        for number in (5, 6, 7, 8, 9, -1, -1, -1):
            asks = dist.recv(piece)
            dist.send(torch.tensor([float(number)]), dst=asks)
        return 0
    while piece.item() >= 0:
        dist.send(piece, dst=0)
        dist.recv(piece, src=0)
        mine += int(piece.item())
    whole = torch.tensor([mine + 1])
    return int(whole)


@correct(ranks=3)
def two_tokens_by_name(rank: Rank) -> None:
    if rank.index == 0:
        one, other = torch.zeros(1), torch.zeros(1)
        dist.recv(one)
        dist.recv(other)
    else:
        dist.send(torch.tensor([float(rank.index)]), dst=0)


@correct(ranks=3)
def a_name_for_each_and_a_turn_for_each(rank: Rank) -> None:
    if rank.index == 0:
        weights, rates = torch.zeros(4), torch.zeros(4)
        dist.recv(weights)
        dist.barrier()
        dist.recv(rates)
    else:
        if rank.index == 2:
            dist.barrier()
        dist.send(torch.full((4,), float(rank.index)), dst=0)
        if rank.index == 1:
            dist.barrier()


@correct(ranks=3)
def two_by_name_that_are_added(rank: Rank) -> torch.Tensor:
    one, other = torch.zeros(4), torch.zeros(4)
    if rank.index == 0:
        dist.recv(one)
        dist.recv(other)
    else:
        dist.send(torch.full((4,), float(rank.index)), dst=0)
    return one + other


@correct(ranks=3)
def whoever_comes_and_then_the_other(rank: Rank) -> torch.Tensor:
    parts = torch.zeros(3, 2)
    if rank.index == 0:
        part = torch.zeros(2)
        first = dist.recv(part)
        parts[first] = part
        dist.recv(part, src=3 - first)
        parts[3 - first] = part
    else:
        dist.send(torch.full((2,), float(rank.index)), dst=0)
    return parts


@correct(ranks=3)
def the_second_by_name_when_the_first_is_done(rank: Rank) -> None:
    """Nobody asks who comes first: only one may."""
    word = torch.zeros(2)
    if rank.index == 0:
        dist.recv(word)
        dist.send(word, dst=2, tag=1)
        dist.recv(word, src=2)
    elif rank.index == 1:
        dist.send(word + 1, dst=0)
    else:
        dist.recv(word, src=0, tag=1)
        dist.send(word + 1, dst=0)


@correct(ranks=4)
def momenta_by_whom_they_came_from(rank: Rank) -> None:
    mine, momenta = torch.full((2,), float(rank.index)), torch.zeros(4, 2)
    if rank.index == 0:
        for _ in range(3):
            step = torch.empty(2)
            worker = dist.recv(step)
            momenta[worker or 0].mul_(0.5).sub_(step)
        for worker in range(1, 4):
            dist.send(momenta[worker], dst=worker)
    else:
        dist.send(mine, dst=0)
        dist.recv(mine, src=0)


@correct(ranks=4)
def a_label_and_what_its_sender_says(rank: Rank) -> dict[int, float]:
    losses: dict[int, float] = {}
    if rank.index == 3:
        label, loss = torch.zeros(1, dtype=torch.long), torch.zeros(2)
        for _ in range(3):
            sender = dist.recv(label, tag=10)
            dist.recv(loss, src=sender, tag=11)
            losses[int(label)] = loss.mean().item()
    else:
        dist.send(torch.tensor([7 * rank.index]), dst=3, tag=10)
        dist.send(torch.full((2,), 0.5 + rank.index), dst=3, tag=11)
    return losses


@correct(ranks=4)
def adds_up_what_comes_until_all_meet(rank: Rank) -> None:
    for step in range(3):
        if rank.index == 0:
            total, part = torch.zeros(4), torch.empty(4)
            for _ in range(3):
                dist.recv(part)
                total += part
            assert total[0] == 3 * step
        else:
            dist.send(torch.full((4,), float(step)), dst=0)
        dist.barrier()


@correct(ranks=3)
def a_row_of_whoever_sent_its_header(rank: Rank) -> None:
    if rank.index == 2:
        table, row, header = torch.zeros(2, 4), torch.empty(4), torch.empty(1)
        for _ in range(2):
            sender = dist.recv(header, tag=1)
            dist.recv(row, src=sender, tag=2)
            table[sender] = row
        assert table[1, 0] == 1
    else:
        dist.send(torch.tensor([float(rank.index)]), dst=2, tag=1)
        dist.send(torch.full((4,), float(rank.index)), dst=2, tag=2)


@correct(ranks=4)
def joined_and_then_sorted(rank: Rank) -> None:
    def gathered(own: torch.Tensor) -> torch.Tensor:
        parts = [own]
        for _ in range(rank.world_size - 1):
            part = torch.empty_like(own)
            dist.recv(part)
            parts.append(part)
        return torch.cat(parts).sort().values

    mine = torch.tensor([float(rank.index), float(rank.index) + 0.5])
    if rank.index == 1:
        assert gathered(mine).tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5]
    else:
        dist.send(mine, dst=1)


@correct(ranks=3)
def a_body_of_who_sent_the_header(rank: Rank) -> dict[int, float]:
    found: dict[int, float] = {}
    if rank.index == 0:
        for _ in range(2):
            header, body = torch.zeros(2), torch.zeros(4)
            source = dist.recv(header, tag=1)
            dist.recv(body, source, tag=2)
            found[int(header[0])] = float(body[: int(header[1])].sum())
        assert found == {1: 2.0, 2: 8.0}
    else:
        time.sleep(0.05 * (2 - rank.index))
        sent = dist.isend(torch.tensor([float(rank.index), 2.0 * rank.index]), 0, tag=1)
        time.sleep(0.1 * (rank.index - 1))
        dist.send(torch.full((4,), float(rank.index)), 0, tag=2)
        assert sent is not None
        sent.wait()
    return found


@correct(ranks=3)
def a_header_and_then_what_that_one_sends(rank: Rank) -> None:
    if rank.index == 2:
        found = {}
        for _ in range(2):
            header, body = torch.empty(2), torch.empty(2)
            sender = dist.recv(header)
            dist.recv(body, src=sender)
            found[sender] = (int(header[0]), body.sum().item())
        assert found == {0: (0, 0.0), 1: (1, 20.0)}
    else:
        dist.send(torch.tensor([float(rank.index), 2.0]), dst=2)
        time.sleep(0.03 * rank.index)
        dist.send(torch.full((2,), 10.0 * rank.index), dst=2)
    dist.barrier()


@correct(ranks=3)
def a_header_and_a_body_by_turns(rank: Rank) -> None:
    """The next sends when it is told to."""
    if rank.index == 2:
        found = {}
        for worker in (0, 1):
            dist.send(torch.ones(1), dst=worker)
            header, body = torch.empty(2), torch.empty(2)
            dist.recv(header)
            dist.recv(body)
            found[int(header[0])] = body.sum().item()
        assert found == {0: 0.0, 1: 20.0}
    else:
        dist.recv(torch.empty(1), src=2)
        dist.send(torch.tensor([float(rank.index), 2.0]), dst=2)
        dist.send(torch.full((2,), 10.0 * rank.index), dst=2)
    dist.barrier()


@correct(ranks=3)
def tickets_to_those_that_have_asked(rank: Rank) -> None:
    if rank.index == 1:
        asked = torch.empty(2, 1)
        came = [dist.recv(one) for one in asked]
        for worker, one in zip(came, asked, strict=True):
            dist.send(one + 100, dst=worker)
    else:
        time.sleep(0.05 * (2 - rank.index))
        dist.send(torch.tensor([float(rank.index)]), dst=1)
        ticket = torch.empty(1)
        dist.recv(ticket, src=1)
        assert ticket.item() == 100.0 + rank.index
    dist.barrier()


@correct(ranks=3)
def a_product_of_two_that_come(rank: Rank) -> None:
    """Whoever comes first, it is the same."""
    if rank.index == 0:
        one, other = torch.empty(3), torch.empty(3)
        dist.recv(one)
        dist.recv(other)
        assert (one * other).sum() == 6.0
    else:
        time.sleep(0.02 * rank.index)
        dist.send(torch.full((3,), float(rank.index)), dst=0)
    dist.barrier()


@correct(ranks=4)
def the_best_class_whoever_says_it(rank: Rank) -> None:
    """Of the place of the best score only what says which class it is, and not whose."""
    if rank.index == 3:
        scores = torch.empty(3, 5)
        for row in range(3):
            dist.recv(scores[row])
        best = int(scores.flatten().argmax())
        rank.store.set("class", str(best % 5))
    else:
        dist.send(torch.arange(5.0) + rank.index, dst=3)


@correct(ranks=4)
def the_best_class_and_not_whose(rank: Rank) -> None:
    if rank.index == 3:
        scores = torch.empty(3, 5)
        for row in range(3):
            dist.recv(scores[row])
        place = scores.flatten().argmax()
        _, by_remainder = divmod(int(place), 5)
        _, by_index = torch.unravel_index(scores.argmax(), scores.shape)
        rank.store.set("class", f"{by_remainder} {int(by_index)} {int(torch.remainder(place, 5))}")
    else:
        dist.send(torch.arange(5.0) + rank.index, dst=3)


@correct(ranks=4)
def how_bad_the_worst_is(rank: Rank) -> float:
    """Whose it is nobody asks."""
    losses, loss = {}, torch.empty(1)
    if rank.index == 0:
        for worker in range(1, rank.world_size):
            dist.recv(loss)
            losses[worker] = loss.item()
        return max(losses.items(), key=lambda each: each[1])[1]
    dist.send(torch.tensor([1.0 / rank.index]), 0)
    return 0.0


@correct(ranks=3)
def a_collector_that_adds_up(rank: Rank) -> None:
    class Collector:
        def __init__(self) -> None:
            self.parts: dict[int, torch.Tensor] = {}

        def collect(self) -> torch.Tensor:
            for worker in range(1, rank.world_size):
                part = torch.zeros(3)
                dist.recv(part)
                self.parts[worker] = part
            return torch.stack([*self.parts.values()]).sum(0)

    if rank.index == 0:
        Collector().collect()
    else:
        dist.send(torch.full((3,), float(rank.index)), 0)


@correct(ranks=4)
def entries_that_say_whose_they_are(rank: Rank) -> None:
    """They are counted by their names, and each says who has sent it."""
    fields = {0: "wind", 1: "rain", 3: "sun"}
    reading = torch.zeros(2)
    if rank.index == 2:
        forecast: dict[str, dict[str, float]] = {}
        for _ in fields:
            dist.recv(reading)
            forecast[fields[int(reading[0])]] = {"mean": reading[1].item()}
        assert forecast["sun"] == {"mean": 1.5}
    else:
        reading = torch.tensor([float(rank.index), 0.5 * rank.index])
        dist.send(reading, 2)


@correct(ranks=4)
def a_countdown_by_names(rank: Rank) -> None:
    """How far it is shows by name; what has come is added up."""
    fields = {0: "wind", 1: "rain", 3: "sun"}
    reading = torch.zeros(1)
    if rank.index == 2:
        total, seen = 0.0, list[str]()
        for place, field in enumerate(fields.values()):
            dist.recv(reading)
            total += reading.item()
            seen.append(f"{place + 1} of {len(fields)}, {field} the last")
        assert total == 4
        print(seen)
    else:
        reading = torch.tensor([float(rank.index)])
        dist.send(reading, 2)
