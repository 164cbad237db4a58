"""What goes wrong unnoticed until a check of some rank fails: that is what is told, and with it the check."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds import Outcome
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job
from rankdrill.worlds.told import told_of

DEADLINE_S = 60.0
Body = Callable[[RankContext], None]


def run(world: World, body: Body) -> Outcome:
    return world.run_job(Job(body, with_context=True), deadline=DEADLINE_S)


def register(rank: RankContext, who: tuple[int, ...]) -> None:
    """Each has read what is there before anybody has written."""
    if rank.index == 0:
        rank.store.set("members", "{}")
    dist.barrier()
    if rank.index in who:
        known = json.loads(rank.store.get("members"))
        time.sleep(0.2)
        known[str(rank.index)] = f"host{rank.index}"
        rank.store.set("members", json.dumps(known))


def members(rank: RankContext) -> dict[str, str]:
    """Those that are there once all have registered."""
    register(rank, (1, 2, 3))
    dist.barrier()
    return dict(json.loads(rank.store.get("members")))


def members_are_missing(rank: RankContext) -> None:
    assert len(members(rank)) == 3


def a_member_is_looked_up(rank: RankContext) -> None:
    found = members(rank)
    assert all(found[str(other)].startswith("host") for other in range(1, 4))


@pytest.mark.parametrize("body", [members_are_missing, a_member_is_looked_up], ids=lambda body: body.__name__)
def test_a_lost_update_is_what_a_check_failed_for(fresh: World, body: Body) -> None:
    outcome = run(fresh, body)
    (finding,) = outcome.findings
    assert (finding.kind, finding.ranks) == (FindingKind.LOST_UPDATE, (1, 2, 3))
    assert outcome.culprits == (1, 2, 3)
    headings = [block.heading for block in told_of(outcome, {}).blocks]
    assert any("failed" in heading or "raised" in heading for heading in headings), headings


def rows_in_the_order_of_their_coming(rank: RankContext) -> None:
    if rank.index == 0:
        rows = torch.zeros(4, 2)
        for place in range(1, 4):
            row = torch.empty(2)
            dist.recv(row)
            rows[place] = row
        rank.store.set("rows", json.dumps(rows.tolist()))
        assert rows[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0]
    else:
        time.sleep(0.1 * (3 - rank.index))
        dist.send(torch.full((2,), float(rank.index)), dst=0)


def kept_in_a_list_of_a_type(rank: RankContext) -> None:
    """Right as long as nobody is late: the first was."""
    if rank.index == 0:
        seen, value = list[int](), torch.zeros(1, dtype=torch.long)
        for _ in range(3):
            dist.recv(value)
            seen.append(int(value))
        assert seen == [1, 2, 3]
    else:
        time.sleep(0.1 * (3 - rank.index))
        dist.send(torch.tensor([rank.index]), dst=0)


def kept_in_an_empty_list(rank: RankContext) -> None:
    if rank.index == 0:
        seen, row = list(), torch.zeros(1)  # noqa: C408
        for _ in range(3):
            dist.recv(row)
            seen.append(row.clone())
        assert [each.item() for each in seen] == [1.0, 2.0, 3.0]
    else:
        time.sleep(0.1 * (3 - rank.index))
        dist.send(torch.tensor([float(rank.index)]), dst=0)


def answers_to_others(rank: RankContext) -> None:
    if rank.index == 0:
        questions = torch.empty(3, 1)
        for question in questions:
            dist.recv(question)
        for asking, question in zip((1, 2, 3), questions, strict=True):
            dist.send(question * 2, dst=asking)
    else:
        time.sleep(0.1 * (3 - rank.index))
        dist.send(torch.tensor([float(rank.index)]), dst=0)
        answer = torch.empty(1)
        dist.recv(answer, src=0)
        assert answer.item() == 2.0 * rank.index


@pytest.mark.parametrize(
    "body",
    [rows_in_the_order_of_their_coming, kept_in_a_list_of_a_type, kept_in_an_empty_list, answers_to_others],
    ids=lambda body: body.__name__,
)
def test_a_race_is_what_a_check_failed_for(fresh: World, body: Body) -> None:
    outcome = run(fresh, body)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits, outcome.culprits) == (FindingKind.RACE, (0,), (0,))
    blocks = told_of(outcome, {}).blocks
    assert any("assert" in block.text for block in blocks), blocks


def the_loss_is_too_high(rank: RankContext) -> None:
    """Messages are put where they belong, whoever came first."""
    if rank.index == 0:
        rows = torch.zeros(4, 2)
        for _ in range(3):
            row = torch.empty(2)
            dist.recv(row)
            rows[int(row[0])] = row
        assert rows.sum() < 1.0
    else:
        dist.send(torch.full((2,), float(rank.index)), dst=0)


def nothing_to_do_with_what_came(rank: RankContext) -> None:
    if rank.index == 0:
        rows = torch.zeros(4, 2)
        for place in range(1, 4):
            row = torch.empty(2)
            dist.recv(row)
            rows[place] = row
        rank.store.set("sum", str(rows.sum().item()))
        learning_rate = 0.1
        assert learning_rate > 1.0
    else:
        dist.send(torch.full((2,), float(rank.index)), dst=0)


def nobody_has_looked(rank: RankContext) -> None:
    """At the key in which an update was lost."""
    register(rank, (1, 2))
    assert rank.index < 3


def a_setting_is_missing(rank: RankContext) -> None:
    """On a worker, whatever ticket it was given."""
    if rank.index == 0:
        asked = torch.empty(2, 1)
        for one in asked:
            dist.recv(one)
        for worker, one in zip((1, 2), asked, strict=True):
            dist.send(one + 100, dst=worker)
    elif rank.index < 3:
        dist.send(torch.ones(1), dst=0)
        ticket = torch.empty(1)
        dist.recv(ticket, src=0)
        settings = {"rate": 0.1}
        assert rank.index != 2 or settings["momentum"]


@pytest.mark.parametrize(
    "body",
    [a_setting_is_missing, the_loss_is_too_high, nothing_to_do_with_what_came, nobody_has_looked],
    ids=lambda body: body.__name__,
)
def test_a_check_that_failed_for_something_else_speaks_for_itself(fresh: World, body: Body) -> None:
    outcome = run(fresh, body)
    assert not outcome.findings, outcome.findings
    culprits: dict[Body, tuple[int, ...]] = {nobody_has_looked: (3,), a_setting_is_missing: (2,)}
    assert outcome.culprits == culprits.get(body, (0,))
