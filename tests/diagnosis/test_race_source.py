"""What the source says of a receive from anybody: who sent is known, or dropped; the order matters, or does not."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill.diagnosis.races.answers import answered_as_filed, answers_in_a_row
from rankdrill.diagnosis.races.last_word import counts_the_last
from rankdrill.diagnosis.races.lines import has_a_line_for_each, is_put_together
from rankdrill.diagnosis.races.places import answered_by_place, kept_in_order
from rankdrill.diagnosis.races.reception import Reception, reception_at
from rankdrill.diagnosis.races.weighed import is_weighed_by_turn
from rankdrill.step import Site

MANY = 4  # elements of a message
ROOT = 2  # the rank that receives
Program = Callable[..., Any]


def site(function: Program, mark: str = "here", caller: Site | None = None) -> Site:
    lines, first = inspect.getsourcelines(function)
    (line,) = [number for number, text in enumerate(lines, first) if text.rstrip().endswith(f"# {mark}")]
    return Site(inspect.getfile(function), line, function.__name__, caller=caller)


def reception(function: Program) -> Reception:
    found = reception_at(site(function))
    assert found is not None
    return found


# ----------------------------------------------------------------------------------------- kept in the order


def rows_of_a_tensor() -> None:
    rows = torch.zeros(3, MANY)
    for row in rows:
        dist.recv(row)  # here


def by_their_number() -> None:
    rows = [torch.zeros(MANY) for _ in range(3)]
    for worker in range(1, 4):
        dist.recv(tensor=rows[worker - 1])  # here
    print(len(rows), rows[0].shape)


def told_by_names_of_a_list() -> dict[str, torch.Tensor]:
    rows = []
    for _ in range(2):
        row = torch.zeros(MANY)
        dist.recv(row)  # here
        rows.append(row)
    return dict(zip(["first", "second"], rows, strict=True))


def by_a_name_that_nobody_reads() -> None:
    rows = [torch.zeros(MANY), torch.zeros(MANY)]
    for _, row in enumerate(rows):
        _source = dist.recv(row)  # here


def beside_the_ranks() -> None:
    rows = torch.zeros(2, MANY)
    for _, row in zip((1, 2), rows, strict=True):
        dist.recv(row)  # here


def copied_to_their_places() -> None:
    row, rows = torch.zeros(MANY), torch.zeros(3, MANY)
    number = 0
    while number < 3:
        dist.recv(row)  # here
        rows[number] = row
        number += 1


def strips_of_a_picture() -> None:
    height, workers = 4, 3
    picture, strip = torch.zeros(height * (workers + 1), MANY), torch.zeros(height, MANY)
    for worker in range(1, workers + 1):
        dist.recv(strip)  # here
        picture[worker * height : (worker + 1) * height] = strip


def all_but_the_first_which_is_its_own(mine: torch.Tensor) -> None:
    rows = [torch.zeros(MANY) for _ in range(4)]
    rows[0] = mine
    for row in rows[1:]:
        dist.recv(row)  # here


def compared_with_the_number() -> None:
    rows = torch.zeros(3, MANY)
    for number in range(3):
        dist.recv(rows[number])  # here
        assert rows[number][0].item() == number + 1


def compared_later() -> None:
    rows = [torch.zeros(1) for _ in range(3)]
    works = [dist.irecv(row) for row in rows]  # here
    for work in works:
        work.wait()  # type: ignore[union-attr]
    for number, row in enumerate(rows):
        assert row.item() == number


def compared_as_a_whole() -> None:
    row, found = torch.zeros(1), []
    for _ in range(3):
        dist.recv(row)  # here
        found.append(row.item())
    assert found == [1.0, 2.0, 3.0]


def joined_and_compared(expected: torch.Tensor) -> None:
    rows = [torch.zeros(MANY) for _ in range(3)]
    for row in rows:
        dist.recv(row)  # here
    assert torch.equal(torch.stack(rows), expected)


def joined_and_returned(own: torch.Tensor) -> torch.Tensor:
    parts = [own]
    for _ in range(3):
        part = torch.empty_like(own)
        dist.recv(part)  # here
        parts.append(part)
    return torch.cat(parts)


def joined_behind_its_own(own: torch.Tensor) -> torch.Tensor:
    parts: list[torch.Tensor] = []
    while len(parts) < 3:
        part = torch.empty_like(own)
        dist.recv(part)  # here
        parts.append(part)
    return torch.stack([own, *parts])


def joined_and_read_at_one_end() -> None:
    halves = [torch.empty(MANY), torch.empty(MANY)]
    for half in halves:
        dist.recv(half)  # here
    picture = torch.cat(halves)
    print(picture.shape, picture[0].item())


def joined_and_read_by_the_row() -> float:
    rows = []
    for _ in range(3):
        row = torch.empty(MANY)
        dist.recv(row)  # here
        rows.append(row)
    return float(torch.stack(rows)[-1, :2].sum())


def shown_under_the_number_of_a_rank(world_size: int) -> None:
    table, score = {}, torch.zeros(1)
    for shard in range(1, world_size):
        dist.recv(score)  # here
        table[shard] = score.item()
    print(table)


def returned_under_the_number_of_a_rank(world_size: int) -> dict[int, torch.Tensor]:
    shares = {}
    for owner in range(1, world_size):
        share = torch.zeros(MANY)
        dist.recv(share)  # here
        shares[owner] = share
    assert len(shares) == world_size - 1
    return shares


def read_by_the_number_of_a_rank(world_size: int) -> torch.Tensor:
    shares = {}
    for owner in range(1, world_size):
        share = torch.zeros(MANY)
        dist.recv(share)  # here
        shares[owner] = share
    return torch.stack([shares[owner] for owner in sorted(shares)])


def under_names() -> None:
    questions = ["one", "two", "three"]
    answers = {}
    for question in questions:
        answer = torch.zeros(1)
        dist.recv(answer, tag=2)  # here
        answers[question] = answer.item()


def named_later() -> dict[int, torch.Tensor]:
    rows = []
    for _ in range(2):
        row = torch.empty(MANY)
        dist.recv(row)  # here
        rows.append(row)
    return {1: rows[0], 2: rows[1]}


def handed_over_by_name(take: Program) -> None:
    rows = []
    for _ in range(2):
        row = torch.empty(MANY)
        dist.recv(row)  # here
        rows.append(row)
    take(weight=rows[0], bias=rows[1])


def the_worst_of_them_by_the_number_of_a_rank(world_size: int) -> int:
    losses, loss = {}, torch.zeros(1)
    for worker in range(1, world_size):
        dist.recv(loss)  # here
        losses[worker] = loss.item()
    return max(losses, key=losses.__getitem__)


def from_the_worst_to_the_best(world_size: int) -> list[tuple[int, float]]:
    losses: dict[int, float] = {}
    loss = torch.zeros(1)
    for worker in range(1, world_size):
        dist.recv(loss)  # here
        losses[worker] = loss.item()
    return sorted(losses.items(), key=lambda each: -each[1])


KEPT = [
    the_worst_of_them_by_the_number_of_a_rank,
    from_the_worst_to_the_best,
    named_later,
    handed_over_by_name,
    joined_and_read_at_one_end,
    joined_and_read_by_the_row,
    shown_under_the_number_of_a_rank,
    returned_under_the_number_of_a_rank,
    read_by_the_number_of_a_rank,
    under_names,
    joined_and_returned,
    joined_behind_its_own,
    rows_of_a_tensor,
    by_their_number,
    by_a_name_that_nobody_reads,
    told_by_names_of_a_list,
    beside_the_ranks,
    copied_to_their_places,
    strips_of_a_picture,
    all_but_the_first_which_is_its_own,
    compared_with_the_number,
    compared_later,
    compared_as_a_whole,
    joined_and_compared,
]


@pytest.mark.parametrize("function", KEPT)
def test_kept_in_the_order_in_which_they_come(function: Program) -> None:
    assert kept_in_order(reception(function), MANY)


def added_up() -> torch.Tensor:
    rows = torch.zeros(3, MANY)
    for row in rows:
        dist.recv(row)  # here
    return rows.sum(0)


def given_back() -> list[torch.Tensor]:
    rows = [torch.zeros(MANY) for _ in range(3)]
    for row in rows:
        dist.recv(row)  # here
    return rows


def handed_to_somebody(take: Program) -> None:
    rows = [torch.zeros(MANY) for _ in range(3)]
    for row in rows:
        dist.recv(row)  # here
    take(rows)


def known_elsewhere(table: torch.Tensor) -> None:
    rows = table[1:]
    for row in rows:
        dist.recv(row)  # here


def tensors_that_have_names() -> float:
    first, second = torch.zeros(1), torch.zeros(1)
    rows = [first, second]
    for row in rows:
        dist.recv(row)  # here
    return max(first.item(), second.item())


def read_by_a_function_inside() -> Program:
    rows = torch.zeros(3, MANY)
    for row in rows:
        dist.recv(row)  # here

    def total() -> float:
        return float(rows.sum())

    return total


def read_in_the_round() -> None:
    rows, total = torch.zeros(3, MANY), torch.zeros(MANY)
    for row in rows:
        dist.recv(row)  # here
        total += row


def a_pile() -> None:
    row, found = torch.zeros(MANY), []
    for _ in range(3):
        dist.recv(row)  # here
        found.append(row.clone())
    assert len(found) == 3


def by_what_the_message_says() -> None:
    row, rows = torch.zeros(MANY), torch.zeros(3, MANY)
    for _ in range(3):
        dist.recv(row)  # here
        rows[int(row[0])] = row


def as_many_rows_as_it_says() -> None:
    header, rows = torch.zeros(1), torch.zeros(3 * MANY, MANY)
    for turn in range(3):
        dist.recv(header, src=None, tag=1)
        first = int(header)
        dist.recv(rows[first + turn], tag=2)  # here


def by_a_number_of_another_message(header: torch.Tensor) -> None:
    rows = torch.zeros(3, MANY)
    for _ in range(3):
        dist.recv(header, src=None, tag=1)
        number = int(header)
        dist.recv(rows[number], tag=2)  # here


def all_in_flight_at_once() -> None:
    rows, works = [torch.zeros(MANY) for _ in range(3)], []
    for row in rows:
        works.append(dist.irecv(row))  # here
    for work in works:
        work.wait()  # type: ignore[union-attr]


def one_order_or_the_other() -> None:
    row, found = torch.zeros(1), []
    for _ in range(2):
        dist.recv(row)  # here
        found.append(row.item())
    assert found == [1, 2] or found == [2, 1]


def whatever_it_is_it_is_no_number_of_places() -> None:
    rows = torch.zeros(3, MANY)
    for row in rows:
        dist.recv(row)  # here
        assert row[0].item() == MANY


def by_names_that_are_no_count(names: dict[int, float]) -> None:
    rows = torch.zeros(3, MANY)
    for number, row in enumerate(rows):
        dist.recv(row)  # here
        assert row[0].item() == names[number]


def the_same_of_all() -> None:
    rows = [torch.zeros(1) for _ in range(3)]
    for row in rows:
        dist.recv(row)  # here
    assert [row.numel() for row in rows] == [1] * 3


def only_timed() -> float:
    rows, begun = torch.zeros(3, MANY), time.perf_counter()
    for row in rows:
        dist.recv(row)  # here
    return time.perf_counter() - begun


def once() -> None:
    rows = torch.zeros(1, MANY)
    dist.recv(rows[0])  # here


def joined_and_sorted(own: torch.Tensor) -> torch.Tensor:
    parts = [own]
    for _ in range(3):
        part = torch.empty_like(own)
        dist.recv(part)  # here
        parts.append(part)
    return torch.cat(parts).sort().values


def joined_to_be_added_up() -> torch.Tensor:
    parts = []
    for _ in range(3):
        part = torch.empty(MANY)
        dist.recv(part)  # here
        parts.append(part)
    return torch.stack(parts).sum(0)


def weighed_by_the_epoch() -> torch.Tensor:
    total, part = torch.zeros(MANY), torch.empty(MANY)
    for epoch in range(1, 4):
        for _worker in range(3):
            dist.recv(part)  # here
            total += part / epoch
    return total


def shown_by_how_many_came_before(workers: int) -> None:
    table, score = {}, torch.zeros(1)
    for number in range(workers):
        dist.recv(score)  # here
        table[number] = score.item()
    print(table)


def the_largest_under_the_number_of_a_rank(world_size: int) -> float:
    table, score = {}, torch.zeros(1)
    for worker in range(1, world_size):
        dist.recv(score)  # here
        table[worker] = score.item()
    return max(table[worker] for worker in sorted(table))


def how_bad_the_worst_under_the_number_of_a_rank_is(world_size: int) -> float:
    table, score = {}, torch.zeros(1)
    for worker in range(1, world_size):
        dist.recv(score)  # here
        table[worker] = score.item()
    return max(table.items(), key=lambda each: each[1])[1]


def added_up_under_the_number_of_a_rank(world_size: int) -> float:
    table, score, total = {}, torch.zeros(1), 0.0
    for worker in range(1, world_size):
        dist.recv(score)  # here
        table[worker] = score.item()
    for worker in range(1, world_size):
        total += table[worker]
    return total


def joined_of_which_a_column_is_read() -> float:
    rows = []
    for _ in range(3):
        row = torch.empty(MANY)
        dist.recv(row)  # here
        rows.append(row)
    table = torch.stack(rows)
    return float(table[:, 0].sum())


def the_first_of_them_under_a_name() -> dict[str, torch.Tensor]:
    rows = []
    for _ in range(2):
        row = torch.empty(MANY)
        dist.recv(row)  # here
        rows.append(row)
    return {"first": rows[0]}


IN_ANY_ORDER = [
    the_first_of_them_under_a_name,
    shown_by_how_many_came_before,
    the_largest_under_the_number_of_a_rank,
    how_bad_the_worst_under_the_number_of_a_rank_is,
    added_up_under_the_number_of_a_rank,
    joined_of_which_a_column_is_read,
    joined_and_sorted,
    joined_to_be_added_up,
    weighed_by_the_epoch,
    added_up,
    given_back,
    handed_to_somebody,
    known_elsewhere,
    tensors_that_have_names,
    read_by_a_function_inside,
    read_in_the_round,
    a_pile,
    by_what_the_message_says,
    by_a_number_of_another_message,
    as_many_rows_as_it_says,
    all_in_flight_at_once,
    one_order_or_the_other,
    whatever_it_is_it_is_no_number_of_places,
    by_names_that_are_no_count,
    the_same_of_all,
    only_timed,
    once,
]


@pytest.mark.parametrize("function", IN_ANY_ORDER)
def test_in_any_order(function: Program) -> None:
    found = reception(function)
    assert not kept_in_order(found, MANY)
    assert not counts_the_last(found, ROOT)
    assert not is_weighed_by_turn(found)
    assert answers_in_a_row(found) is None


def weighed_by_the_worker() -> torch.Tensor:
    total, part = torch.zeros(MANY), torch.empty(MANY)
    for worker in range(1, 4):
        dist.recv(part)  # here
        total += part / worker
    return total


def weighed_and_kept() -> torch.Tensor:
    kept = torch.zeros(3)
    for place in range(3):
        share = torch.empty(1)
        dist.recv(share)  # here
        kept[place] = 0.5 ** (place + 1) * share
    return kept


@pytest.mark.parametrize("function", [weighed_by_the_worker, weighed_and_kept])
def test_weighed_each_by_its_turn(function: Program) -> None:
    assert is_weighed_by_turn(reception(function))


def scores_by_their_number() -> None:
    scores, score = {}, torch.zeros(1)
    for worker in (1, 2, 3):
        dist.recv(score)  # here
        scores[worker] = score.item()


def test_one_element_that_is_read_is_more_than_a_signal() -> None:
    assert kept_in_order(reception(scores_by_their_number), 1)


def test_a_message_of_one_element_that_nobody_reads_is_a_signal() -> None:
    assert not kept_in_order(reception(rows_of_a_tensor), 1)
    assert kept_in_order(reception(compared_as_a_whole), 1)


# ----------------------------------------------------------------------------------------- the last word


def broadcast_by_its_owner(rank: int) -> None:
    rate = torch.zeros(1)
    if rank == ROOT:
        for _ in range(3):
            dist.recv(rate)  # here
    else:
        dist.send(rate + rank, dst=2)
    dist.broadcast(rate, src=2)


def a_number_of_it() -> float:
    rate = torch.zeros(1)
    for _ in range(3):
        dist.recv(rate)  # here
    scale = rate.item()
    return scale * 2


def a_sum_with_it(weights: torch.Tensor) -> torch.Tensor:
    update: torch.Tensor = torch.zeros(MANY)
    left = 3
    while left:
        dist.recv(update)  # here
        left -= 1
    return weights + update


@pytest.mark.parametrize("function", [broadcast_by_its_owner, a_number_of_it, a_sum_with_it])
def test_the_last_word_counts(function: Program) -> None:
    assert counts_the_last(reception(function), ROOT)


def broadcast_by_another() -> None:
    rate = torch.zeros(1)
    for _ in range(3):
        dist.recv(rate)  # here
    dist.broadcast(rate, src=0)


def looked_at_in_each_round() -> float:
    rate, total = torch.zeros(1), 0.0
    for _ in range(3):
        dist.recv(rate)  # here
        total += rate.item()
    return total + rate.item()


def received_again() -> torch.Tensor:
    rate = torch.zeros(1)
    for _ in range(3):
        dist.recv(rate)  # here
    dist.recv(rate, src=1)
    return rate + 1


def only_asked_for_one_of_several(allowed: list[float]) -> None:
    rate = torch.zeros(1)
    for _ in range(3):
        dist.recv(rate)  # here
    assert rate.item() in allowed


def by_another_name_in_the_round() -> float:
    message = torch.zeros(MANY)
    who, total = message[0:1], 0.0
    for _ in range(3):
        dist.recv(message)  # here
        total += who.item()
    return total + float(message)


def made_in_each_round(weights: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        word = torch.zeros(MANY)
        dist.recv(word)  # here
    return weights + word


@pytest.mark.parametrize(
    "function",
    [
        broadcast_by_another,
        looked_at_in_each_round,
        received_again,
        only_asked_for_one_of_several,
        by_another_name_in_the_round,
        made_in_each_round,
    ],
)
def test_whoever_is_the_last(function: Program) -> None:
    assert not counts_the_last(reception(function), ROOT)


# ----------------------------------------------------------------------------------------- answers


def answers(workers: int) -> None:
    question = torch.zeros(1)
    for worker in range(workers):
        dist.recv(question)  # here
        dist.send(question * 2, dst=worker)  # answer


def answers_by_keyword(workers: int) -> None:
    question = torch.zeros(1)
    for _, worker in enumerate(range(workers)):
        dist.irecv(question).wait()  # type: ignore[union-attr]  # here
        dist.isend(tensor=torch.cos(question), dst=worker + 1, tag=4).wait()  # type: ignore[union-attr]  # answer


@pytest.mark.parametrize("function", [answers, answers_by_keyword])
def test_answers_in_a_row(function: Program) -> None:
    assert answers_in_a_row(reception(function)) == site(function, "answer").line


def answers_when_all_have_asked(workers: int) -> None:
    questions = {}
    for worker in range(1, workers):
        question = torch.zeros(MANY)
        dist.recv(question)  # here
        questions[worker] = question
    for worker, question in questions.items():
        dist.send(-question, dst=worker)  # answer


def answers_each_row(workers: int) -> None:
    rows = []
    for _ in range(workers):
        row = torch.zeros(MANY)
        dist.recv(row)  # here
        rows.append(row)
    for worker, row in enumerate(rows):
        dist.send(row * 2, dst=worker)  # answer


@pytest.mark.parametrize("function", [answers_when_all_have_asked, answers_each_row])
def test_answers_by_the_place_in_which_a_question_was_kept(function: Program) -> None:
    assert answered_by_place(reception(function)) == site(function, "answer").line


def hands_on_what_was_kept() -> None:
    rows = []
    for _ in range(3):
        row = torch.zeros(MANY)
        dist.recv(row)  # here
        rows.append(row)
    for player, row in enumerate(rows):
        dist.send(row, dst=player)


def answers_one_for_all() -> None:
    rows = []
    for _ in range(3):
        row = torch.zeros(MANY)
        dist.recv(row)  # here
        rows.append(row)
    for worker in range(3):
        dist.send(torch.stack(rows).sum(0), dst=worker)


def answers_under_names_of_their_own() -> None:
    rows = {}
    for _ in range(3):
        row = torch.zeros(MANY)
        dist.recv(row)  # here
        rows[int(row[0])] = row
    for worker, row in rows.items():
        dist.send(row * 2, dst=worker)


def answers_what_it_filed_by_turn() -> None:
    offers = {}
    for trader in (1, 2):
        offer = torch.zeros(MANY)
        dist.recv(offer)  # here
        offers[trader] = offer
    for trader, offer in offers.items():
        dist.send(offer * 0.9, dst=trader)  # answer


def deals_out_what_it_filed_by_turn() -> None:
    hand = {}
    for player in (1, 2):
        card = torch.zeros(MANY)
        dist.recv(card)  # here
        hand[player] = card
    for player, card in hand.items():
        dist.send(card, dst=player)


def test_an_answer_to_the_number_under_which_a_question_was_filed() -> None:
    found = reception(answers_what_it_filed_by_turn)
    assert answered_as_filed(found, __file__) == site(answers_what_it_filed_by_turn, "answer").line
    assert answered_as_filed(reception(deals_out_what_it_filed_by_turn), __file__) is None


@pytest.mark.parametrize("function", [hands_on_what_was_kept, answers_one_for_all, answers_under_names_of_their_own])
def test_kept_ones_that_anybody_may_get(function: Program) -> None:
    assert answered_by_place(reception(function)) is None


def answers_whom_the_message_names() -> None:
    question = torch.zeros(2)
    for _ in range(3):
        dist.recv(question)  # here
        dist.send(question * 2, dst=int(question[0]))


def names_the_sender_in_the_answer() -> None:
    question = torch.zeros(2)
    for worker in range(3):
        dist.recv(question)  # here
        dist.send(question[1:] * 2, dst=worker)


def hands_it_on_as_it_is() -> None:
    row = torch.zeros(2)
    for player in range(3):
        dist.recv(row)  # here
        dist.send(row, dst=player)


def sends_tasks_to_the_ready(tasks: list[torch.Tensor]) -> None:
    ready = torch.zeros(2)
    for worker in range(3):
        dist.recv(ready)  # here
        dist.send(tasks[worker], dst=worker)


def one_that_all_is_for() -> None:
    part = torch.zeros(2)
    for _ in range(3):
        dist.recv(part)  # here
        dist.send(part * 2, dst=7)


@pytest.mark.parametrize(
    "function",
    [
        answers_whom_the_message_names,
        names_the_sender_in_the_answer,
        hands_it_on_as_it_is,
        sends_tasks_to_the_ready,
        one_that_all_is_for,
    ],
)
def test_answers_that_anybody_may_get(function: Program) -> None:
    assert answers_in_a_row(reception(function)) is None


# ----------------------------------------------------------------------------------------- who it was


def asked(rows: torch.Tensor) -> None:
    for row in rows:
        who = dist.recv(row)  # here
        print(who)


def asked_at_once(rows: torch.Tensor) -> list[int]:
    return [dist.recv(row) for row in rows]  # here


def kept_by_a_comprehension(rows: torch.Tensor) -> None:
    sources = [dist.recv(row) for row in rows]  # here
    rows[0] = rows[sources.index(1)]


def the_request_is_asked(rows: torch.Tensor) -> None:
    for row in rows:
        work: Any = dist.irecv(row)  # here
        work.wait()
        assert work._source_rank() > 0


def the_request_is_handed_on(rows: torch.Tensor, pending: Program) -> None:
    for row in rows:
        pending(dist.irecv(row))  # here


def two_in_a_line(row: torch.Tensor) -> None:
    dist.recv(row), dist.recv(row)  # here


@pytest.mark.parametrize(
    "function",
    [
        asked,
        asked_at_once,
        kept_by_a_comprehension,
        the_request_is_asked,
        the_request_is_handed_on,
        two_in_a_line,
    ],
)
def test_where_it_can_be_known_who_sent(function: Program) -> None:
    assert reception_at(site(function)) is None


def test_without_source_nothing_is_known() -> None:
    assert reception_at(Site("<string>", 3, "collect")) is None
    assert reception_at(Site(__file__, 3, "another_function")) is None


# ----------------------------------------------------------------------------------------- helpers


def take(into: torch.Tensor) -> None:
    dist.recv(into, tag=3)  # here


def take_and_say_who(into: torch.Tensor) -> int:
    return dist.recv(into)  # here


def take_and_look(into: torch.Tensor) -> None:
    dist.recv(into)  # here
    print(into)


def take_again_and_again(into: torch.Tensor) -> None:
    for _ in range(3):
        dist.recv(into)  # here


class Desk:
    def take(self, into: torch.Tensor) -> None:
        dist.recv(into)  # here


def uses_helpers(desk: Desk) -> None:
    rows = torch.zeros(3, MANY)
    for row in rows:
        take(row)  # plain
        take_and_say_who(row)  # said
        print(take_and_say_who(row))  # asked
        desk.take(into=row)  # keyword
        desk.take(row)  # method
        take_and_look(row)  # looks
        take_again_and_again(row)  # again


@pytest.mark.parametrize(
    ("helper", "call"), [(take, "plain"), (take_and_say_who, "said"), (Desk.take, "keyword"), (Desk.take, "method")]
)
def test_of_a_helper_its_call_counts(helper: Program, call: str) -> None:
    found = reception_at(site(helper, caller=site(uses_helpers, call)))
    assert found is not None
    assert found.call.lineno == site(uses_helpers, call).line
    assert getattr(found.into, "id", "") == "row"


@pytest.mark.parametrize(
    ("helper", "call"), [(take_and_say_who, "asked"), (take_and_look, "looks"), (take_again_and_again, "again")]
)
def test_a_helper_that_does_more_is_not_followed(helper: Program, call: str) -> None:
    assert reception_at(site(helper, caller=site(uses_helpers, call))) is None


def test_a_helper_whose_caller_nobody_knows() -> None:
    assert reception_at(site(take)) is None


# ----------------------------------------------------------------------------------------- a line for each


def two_by_name() -> None:
    weights, rates = torch.empty(MANY), torch.empty(MANY)
    dist.recv(weights)  # here
    dist.recv(rates)
    print(weights.shape)


def head_and_body_in_a_loop() -> None:
    for _ in range(2):
        head = torch.zeros(2)
        dist.recv(head)  # here
        body = torch.zeros(MANY)
        dist.irecv(body).wait()  # type: ignore[union-attr]


def the_second_less_the_first() -> list[float]:
    before, after = torch.empty(MANY), torch.empty(MANY)
    dist.recv(before)  # here
    dist.recv(after)
    return list((after - before).tolist())


def each_for_something_else() -> torch.Tensor:
    weight, bias = torch.empty(MANY), torch.empty(MANY)
    dist.recv(weight)  # here
    dist.recv(bias)
    return torch.addcmul(bias, weight, torch.ones(MANY))


def one_place_after_the_other() -> None:
    tokens = [torch.empty(MANY), torch.empty(MANY)]
    dist.recv(tokens[0])  # here
    dist.recv(tokens[1])


def each_by_a_weight_of_its_own() -> None:
    mixed = []
    one, other = torch.empty(MANY), torch.empty(MANY)
    dist.recv(one)  # here
    dist.recv(other)
    mixed.append(torch.stack([one * 0.8, 0.2 * other]))


def where_others_name_theirs(rank: int, row: torch.Tensor) -> None:
    for step in range(2):
        left, right = torch.empty(MANY), torch.empty(MANY)
        if rank == 2:
            dist.recv(left, tag=step)  # here
            dist.recv(right, tag=step)
        else:
            dist.recv(left, rank - 1, tag=step)
            dist.recv(right, rank + 1, tag=step)
        print(torch.diff(torch.cat([left, row, right])))


def on_both_sides_of_its_own(row: torch.Tensor) -> None:
    left, right = torch.empty(MANY), torch.empty(MANY)
    dist.recv(left)  # here
    dist.recv(right)
    padded = torch.cat([left, row, right])
    print(torch.diff(padded))


@pytest.mark.parametrize(
    "function",
    [
        each_by_a_weight_of_its_own,
        on_both_sides_of_its_own,
        where_others_name_theirs,
        one_place_after_the_other,
        two_by_name,
        head_and_body_in_a_loop,
        the_second_less_the_first,
        each_for_something_else,
    ],
)
def test_a_line_and_a_name_for_each(function: Program) -> None:
    assert has_a_line_for_each(reception(function), MANY)


@pytest.mark.parametrize("function", [one_place_after_the_other, two_by_name, head_and_body_in_a_loop])
def test_a_token_may_be_anybodys(function: Program) -> None:
    assert not has_a_line_for_each(reception(function), 1)


@pytest.mark.parametrize("function", [on_both_sides_of_its_own, the_second_less_the_first, where_others_name_theirs])
def test_one_element_that_is_told_apart_is_no_token(function: Program) -> None:
    assert has_a_line_for_each(reception(function), 1)


def cut_to_what_its_header_says() -> None:
    out = []
    for _ in range(2):
        head, body = torch.empty(1), torch.empty(MANY)
        dist.recv(head)  # here
        dist.recv(body, tag=1)
        out.append(body[: int(head)])
    print(out)


def laid_as_its_header_says() -> None:
    for _ in range(2):
        head, body = torch.empty(2), torch.empty(MANY)
        dist.recv(head)  # here
        dist.recv(body, tag=1)
        print(body.view(*head.int().tolist()))


def cut_to_what_was_asked_for(wanted: int) -> None:
    out = []
    for _ in range(2):
        head, body = torch.empty(1), torch.empty(MANY)
        dist.recv(head)  # here
        dist.recv(body, tag=1)
        out.append((head.sum(), body[:wanted]))
    print(out)


def kept_under_what_its_header_says() -> dict[float, torch.Tensor]:
    table = {}
    for _ in range(2):
        head = torch.empty(2)
        dist.recv(head)  # here
        sender, many = head.tolist()
        body = torch.empty(int(many))
        dist.recv(body, tag=1)
        table[sender] = body
    return table


@pytest.mark.parametrize(
    "function", [cut_to_what_its_header_says, laid_as_its_header_says, kept_under_what_its_header_says]
)
def test_a_message_that_the_other_says_how_to_read(function: Program) -> None:
    assert is_put_together(reception(function))
    assert not is_put_together(reception(cut_to_what_was_asked_for))


def added_by_one_weight() -> None:
    mixed = []
    one, other = torch.empty(MANY), torch.empty(MANY)
    dist.recv(one)  # here
    dist.recv(other)
    mixed.append(one * 0.5 + other * 0.5)


def added_to_each_other() -> torch.Tensor:
    one, other = torch.empty(MANY), torch.empty(MANY)
    dist.recv(one)  # here
    dist.recv(other)
    return one + other


def the_larger_of_both() -> torch.Tensor:
    one, other = torch.empty(MANY), torch.empty(MANY)
    dist.recv(one)  # here
    dist.recv(other)
    return torch.maximum(one, other)


def all_three_added_up(row: torch.Tensor) -> torch.Tensor:
    one, other = torch.empty(MANY), torch.empty(MANY)
    dist.recv(one)  # here
    dist.recv(other)
    whole = torch.stack((one, row, other))
    return whole.sum(0)


def joined_behind_its_own_in_one_list(row: torch.Tensor) -> list[torch.Tensor]:
    one, other = torch.empty(MANY), torch.empty(MANY)
    dist.recv(one)  # here
    dist.recv(other)
    return [*torch.cat([row, one, other])]


def places_that_are_added_up() -> torch.Tensor:
    tokens = [torch.empty(MANY), torch.empty(MANY)]
    dist.recv(tokens[0])  # here
    dist.recv(tokens[1])
    return torch.stack(tokens).sum(0)


def how_far_they_are_apart() -> float:
    one, other = torch.empty(MANY), torch.empty(MANY)
    dist.recv(one)  # here
    dist.recv(other)
    return float((one - other).abs().max())


def the_square_of_what_lies_between() -> float:
    one, other = torch.empty(MANY), torch.empty(MANY)
    dist.recv(one)  # here
    dist.recv(other)
    return float(((one - other) ** 2).sum())


def a_difference_that_is_kept() -> float:
    one, other = torch.empty(MANY), torch.empty(MANY)
    dist.recv(one)  # here
    dist.recv(other)
    between = one - other
    return float(between.abs().max())


def twice_into_the_same() -> None:
    row = torch.empty(MANY)
    dist.recv(row)  # here
    dist.recv(row)


def the_second_is_by_name(source: int) -> None:
    head, body = torch.empty(2), torch.empty(MANY)
    dist.recv(head)  # here
    dist.recv(body, src=source)


def one_or_the_other(first: bool) -> None:
    one, other = torch.empty(MANY), torch.empty(MANY)
    if first:
        dist.recv(one)  # here
    else:
        dist.recv(other)


def one_now_and_one_in_each_round() -> None:
    one, other = torch.empty(MANY), torch.empty(MANY)
    dist.recv(one)  # here
    for _ in range(2):
        dist.recv(other)


@pytest.mark.parametrize(
    "function",
    [
        added_by_one_weight,
        added_to_each_other,
        the_larger_of_both,
        all_three_added_up,
        joined_behind_its_own_in_one_list,
        places_that_are_added_up,
        how_far_they_are_apart,
        the_square_of_what_lies_between,
        a_difference_that_is_kept,
        twice_into_the_same,
        the_second_is_by_name,
        one_or_the_other,
        one_now_and_one_in_each_round,
    ],
)
def test_lines_that_may_be_for_any_message(function: Program) -> None:
    assert not has_a_line_for_each(reception(function), MANY)


# ------------------------------------------------------------------------- one thing of two messages, of two senders


@dataclass
class Envelope:
    sender: int
    length: int
    content: torch.Tensor


def made_one_thing_with_its_sender() -> Envelope:
    head, body = torch.empty(2), torch.empty(MANY)
    sender = dist.recv(head, tag=1)
    dist.recv(body, tag=2)  # here
    return Envelope(sender, int(head[1]), content=body)


def paired_with_its_sender() -> list[tuple[int, torch.Tensor]]:
    found = []
    for _ in range(2):
        head, body = torch.empty(2), torch.empty(MANY)
        sender = dist.recv(head, tag=1)
        dist.recv(body, tag=2)  # here
        found.append((sender, body.clone()))
    return found


def shown_beside_each_other() -> None:
    head, body = torch.empty(2), torch.empty(MANY)
    sender = dist.recv(head, tag=1)
    dist.recv(body, tag=2)  # here
    print(sender, body)


def asked_who_it_was() -> list[tuple[int, torch.Tensor]]:
    found = []
    for _ in range(2):
        head, body = torch.empty(2), torch.empty(MANY)
        dist.recv(head, tag=1)
        sender = dist.recv(body, tag=2)  # here
        found.append((sender, body.clone()))
    return found


@pytest.mark.parametrize(
    ("function", "together"),
    [(made_one_thing_with_its_sender, True), (paired_with_its_sender, True), (shown_beside_each_other, False)],
)
def test_a_payload_that_is_given_to_the_sender_of_a_header(function: Program, *, together: bool) -> None:
    assert is_put_together(reception(function)) is together


def test_who_asks_for_the_sender_of_a_payload_knows_it() -> None:
    assert reception_at(site(asked_who_it_was)) is None
