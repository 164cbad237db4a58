"""Messages from anybody that may be of another round, or of another sender than in all other rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import Finding, FindingKind
from rankdrill.worlds import Outcome

DEADLINE_S = 60.0
MANY = 3  # elements of a message
Body = Callable[[], None]


@pytest.fixture(scope="module")
def four() -> Iterator[World]:
    with World(4) as world:
        yield world


def found_on(outcome: Outcome) -> Finding:
    (finding,) = outcome.findings
    assert finding.kind is FindingKind.RACE
    assert finding.culprits == (0,)
    return finding


def sends(of_round: int, tag: int = 0) -> None:
    dist.send(torch.full((MANY,), float(of_round)), dst=0, tag=tag)


# ------------------------------------------------------------------------------------------ a message of each, twice


def adds_up_each_round() -> None:
    if dist.get_rank() == 0:
        for _ in range(2):
            total = torch.zeros(MANY)
            for _ in range(3):
                part = torch.empty(MANY)
                dist.recv(part)  # here
                total += part
    else:
        for turn in range(2):
            sends(turn)
    dist.barrier()


def collects_each_round() -> None:
    if dist.get_rank() == 0:
        for _ in range(2):
            parts = []
            for _ in range(3):
                part = torch.empty(MANY)
                dist.recv(part)  # here
                parts.append(part)
            torch.stack(parts).mean()
    else:
        for turn in range(2):
            sends(turn)
    dist.barrier()


@pytest.mark.parametrize("body", [adds_up_each_round, collects_each_round])
def test_one_of_the_next_round_may_be_taken_for_one_of_this(four: World, body: Body) -> None:
    finding = found_on(four.run(body, deadline=DEADLINE_S))
    assert "a sender's next may come before another one's" in finding.lines[0]


def meets_after_each_round() -> None:
    for turn in range(2):
        if dist.get_rank() == 0:
            total = torch.zeros(MANY)
            for _ in range(3):
                part = torch.empty(MANY)
                dist.recv(part)
                total += part
        else:
            sends(turn)
        dist.barrier()


def adds_up_over_all_rounds() -> None:
    if dist.get_rank() == 0:
        total = torch.zeros(MANY)
        for _ in range(2):
            for _ in range(3):
                part = torch.empty(MANY)
                dist.recv(part)
                total += part
        assert total.tolist() == [3.0] * MANY
    else:
        for turn in range(2):
            sends(turn)
    dist.barrier()


def counts_signals_round_by_round() -> None:
    if dist.get_rank() == 0:
        for _ in range(2):
            done = torch.zeros(1)
            for _ in range(3):
                one = torch.empty(1)
                dist.recv(one)
                done += one
            assert done.item() == 3
    else:
        for _ in range(2):
            dist.send(torch.ones(1), dst=0)
    dist.barrier()


# ------------------------------------------------------------------------------- named in all rounds but one


def names_its_senders_but_in_the_last_round() -> None:
    def take(source: int | None) -> torch.Tensor:
        part = torch.empty(MANY)
        dist.recv(part, src=source)
        return part

    for turn in range(6):
        if dist.get_rank() == 0:
            low = take(1 if turn < 5 else None)
            high = take(2 if turn < 5 else None)
            low.sub_(high)
        elif dist.get_rank() < 3:
            sends(dist.get_rank())
        dist.barrier()


def names_its_sender_but_in_a_middle_round() -> None:
    mine = torch.empty(MANY)
    for turn in range(6):
        if dist.get_rank() == 0:
            dist.recv(mine, src=None if turn == 3 else 2)
            others = torch.empty(MANY)
            dist.recv(others)
        elif dist.get_rank() in (1, 2):
            if dist.get_rank() == 1:
                time.sleep(0.01)
            sends(turn)
        dist.barrier()


def test_a_line_that_names_one_sender_but_once(four: World) -> None:
    finding = found_on(four.run(names_its_senders_but_in_the_last_round, deadline=DEADLINE_S))
    assert "receives from rank 1 there in all other rounds" in finding.lines[0]


def test_though_the_right_one_came_first(four: World) -> None:
    finding = found_on(four.run(names_its_sender_but_in_a_middle_round, deadline=DEADLINE_S))
    assert "receives from rank 2 there in all other rounds" in finding.lines[0]


def goes_on_with_whoever_came() -> None:
    """A head from anybody, and the rest from the same one."""
    if dist.get_rank() == 0:
        source, part = None, torch.empty(MANY)
        for _ in range(4):
            came = dist.recv(part, src=source)
            source = came if source is None else source
        for other in {1, 2, 3} - {source}:
            for _ in range(4):
                dist.recv(part, src=other)
    else:
        for turn in range(4):
            sends(turn)
    dist.barrier()


def names_the_only_one_that_sends() -> None:
    part = torch.empty(MANY)
    for turn in range(5):
        if dist.get_rank() == 0:
            dist.recv(part, src=None if turn == 4 else 1)
        elif dist.get_rank() == 1:
            sends(turn)
        dist.barrier()


# ------------------------------------------------------------------------------------------ two of one sender


def takes_two_in_each_round() -> None:
    if dist.get_rank() == 0:
        path, reward = torch.empty(MANY), torch.empty(1)
        for _ in range(3):
            dist.recv(path, tag=1)
            dist.recv(reward, tag=2)
    else:
        sends(dist.get_rank(), tag=1)
        dist.send(torch.full((1,), float(dist.get_rank())), dst=0, tag=2)
    dist.barrier()


def test_two_of_a_round_that_may_be_of_two_senders(four: World) -> None:
    finding = found_on(four.run(takes_two_in_each_round, deadline=DEADLINE_S))
    assert "takes it to be of the same sender as what it receives from anybody beside it" in finding.lines[0]


def adds_up_two_kinds() -> None:
    if dist.get_rank() == 0:
        paths, rewards = torch.zeros(MANY), torch.zeros(1)
        path, reward = torch.empty(MANY), torch.empty(1)
        for _ in range(3):
            dist.recv(path, tag=1)
            paths += path
            dist.recv(reward, tag=2)
            rewards += reward
        assert rewards.item() == 6
    else:
        sends(dist.get_rank(), tag=1)
        dist.send(torch.full((1,), float(dist.get_rank())), dst=0, tag=2)
    dist.barrier()


@pytest.mark.parametrize(
    "body",
    [
        meets_after_each_round,
        adds_up_over_all_rounds,
        counts_signals_round_by_round,
        goes_on_with_whoever_came,
        names_the_only_one_that_sends,
        adds_up_two_kinds,
    ],
)
def test_what_is_right_passes(four: World, body: Body) -> None:
    four.run(body, deadline=DEADLINE_S).unwrap()
