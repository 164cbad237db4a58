"""In other orders of messages stores answer as they did, and what is set is compared; of many rounds one is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds import Outcome
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job
from tests.worlds.test_other_orders import DEADLINE_S, EARLY_S, name_of, received, sent

Body = Callable[[RankContext], Any]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(4) as made:
        yield made


def run(world: World, body: Body) -> Outcome:
    return world.run_job(Job(body, with_context=True), deadline=DEADLINE_S)


def store_of(rank: RankContext, body: str) -> PrefixStore:
    return PrefixStore(body, rank.store)


# ------------------------------------------------------------------------------- where it matters


def set_as_they_come(rank: RankContext) -> None:
    if rank.index:
        sent()
    else:
        values = [each[0].item() for each in received()]
        store_of(rank, "as they come").set("values", json.dumps(values))


def average(values: Iterator[torch.Tensor]) -> float:
    """One that forgets."""
    found = 0.0
    for each in values:
        found = 0.9 * found + 0.1 * each[0].item()
    return found


def a_store_is_asked_meanwhile(rank: RankContext) -> list[float]:
    store, found = store_of(rank, "meanwhile"), []
    for step in range(3):
        if rank.index:
            sent()
        else:
            found.append(average(received()))
        store.set(f"done/{step}/{rank.index}", "yes")
        for other in range(4):
            store.get(f"done/{step}/{other}")
    return found


def counted_between(rank: RankContext) -> float:
    """Who adds is told what it was added to."""
    if rank.index:
        sent()
        return 0.0
    store, taken = store_of(rank, "counted"), received()
    found = average(iter([next(taken), next(taken)]))
    assert store.add("turns", 2) == 2
    assert store.check(["turns"])
    return average(iter([torch.full((2,), found), next(taken)]))


def in_the_second_round_alone(rank: RankContext) -> list[torch.Tensor]:
    """All others are put where their senders say."""
    found: list[torch.Tensor] = []
    for step in range(12):
        kept: dict[int, torch.Tensor] = {}
        for number in range(3):
            if rank.index == 0:
                message = torch.zeros(2)
                sender = dist.recv(message, tag=step)
                kept[number if step == 1 else sender] = message
        if rank.index:
            dist.send(torch.full((2,), float(rank.index)), dst=0, tag=step)
        found.extend(kept[each] for each in sorted(kept))
    return found


def in_the_second_of_two_lines(rank: RankContext) -> list[float]:
    if rank.index:
        sent()
        dist.send(torch.full((2,), float(rank.index)), dst=0, tag=7)
        return []
    found, message = {}, torch.zeros(2)
    for _ in range(3):
        sender = dist.recv(message)
        found[sender] = message[0].item()
    last = 0.0
    for _ in range(3):
        dist.recv(message, tag=7)  # culprit
        last = 0.5 * last + message[0].item()
    return [*(found[sender] for sender in sorted(found)), last]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (set_as_they_come, "would have set values to something else"),
        (a_store_is_asked_meanwhile, "would have returned something else"),
        (counted_between, "would have returned something else"),
        (in_the_second_round_alone, "would have returned something else"),
        (in_the_second_of_two_lines, "would have returned something else"),
    ],
    ids=name_of,
)
def test_where_it_matters(world: World, body: Body, words: str) -> None:
    outcome = run(world, body)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.RACE, (0,))
    assert words in str(finding)
    assert outcome.elapsed < EARLY_S
    if body is in_the_second_round_alone:
        assert "(tag 1)" in str(finding)
    if body is in_the_second_of_two_lines:
        assert "(tag 7)" in str(finding.sides[0])


def test_what_is_set_is_the_ranks_own(world: World) -> None:
    def sets(rank: RankContext) -> list[float] | None:
        set_as_they_come(rank)
        return json.loads(store_of(rank, "as they come").get("values")) if rank.index == 0 else None

    values = run(world, sets).ranks[0].value
    assert sorted(values) == [1.0, 2.0, 3.0]


# ------------------------------------------------------------------------------- where it does not


def set_by_sender(rank: RankContext) -> None:
    if rank.index:
        sent()
        return
    store, message = store_of(rank, "by sender"), torch.zeros(2)
    for _ in range(3):
        sender = dist.recv(message)
        store.set(f"from/{sender}", repr(message[0].item()))


def a_sum_is_set(rank: RankContext) -> None:
    if rank.index:
        sent(0.1 * rank.index)
    else:
        store_of(rank, "sum").set("sum", repr(sum(each[0].item() for each in received())))


def each_is_answered_by_its_key(rank: RankContext) -> float:
    store = store_of(rank, "answered")
    if rank.index:
        sent()
        store.set(f"ready/{rank.index}", "yes")
        return 0.0
    message, total = torch.zeros(2), 0.0
    for _ in range(3):
        sender = dist.recv(message)
        store.get(f"ready/{sender}")
        total += message[0].item()
    return total


def in_turn_by_keys(rank: RankContext) -> list[float]:
    """Each sends once the one before has been heard."""
    store = store_of(rank, "in turn")
    found: list[float] = []
    if rank.index:
        store.get(f"turn/{rank.index}")
        sent()
        return found
    for number, each in enumerate(iter(received()), 1):
        found.append(each[0].item())
        store.set(f"turn/{number + 1}", "go")
    return found


def starts_the_first(rank: RankContext) -> list[float]:
    if rank.index == 0:
        store_of(rank, "in turn").set("turn/1", "go")
    return in_turn_by_keys(rank)


@pytest.mark.parametrize(
    "body", [set_by_sender, a_sum_is_set, each_is_answered_by_its_key, starts_the_first], ids=name_of
)
def test_where_it_does_not(world: World, body: Body) -> None:
    outcome = run(world, body)
    assert outcome.findings == ()
    outcome.unwrap()
