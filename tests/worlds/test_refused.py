"""What torch refuses before there is a call is told as what it is: a root that is no member, a view with gaps,
what does not fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds import Outcome

DEADLINE_S = 60.0


def halves() -> dist.ProcessGroup:
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = groups[dist.get_rank() // 2]
    assert isinstance(mine, dist.ProcessGroup)
    return mine


def counts_in_the_group() -> None:
    dist.broadcast(torch.zeros(2), src=0, group=halves())  # of ranks 2 and 3 it is 2


def names_each_others() -> None:
    dist.gather_object("shard", [None, None], dst=(dist.get_rank() + 2) % 4, group=halves())


def is_refused_and_has_trouble() -> None:
    group = halves()
    if dist.get_rank() == 3:
        raise KeyError("trouble")
    dist.broadcast(torch.zeros(2), src=0, group=group)


def expects_it() -> None:
    group = halves()
    if dist.get_rank() > 1:
        with pytest.raises(ValueError, match="is not part of group"):
            dist.broadcast(torch.zeros(2), src=0, group=group)


def run(body: object) -> Outcome:
    with World(4) as world:
        return world.run(body, deadline=DEADLINE_S)  # type: ignore[arg-type]


def test_who_names_it_is_told_with_the_line_and_the_error() -> None:
    outcome = run(counts_in_the_group)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.ROOT, (2, 3))
    assert "ranks 2, 3 call broadcast with root 0, which is no member of the group;" in finding.lines[0]
    (line,) = {site.line for site in finding.sides[0].sites if site is not None}
    assert line == counts_in_the_group.__code__.co_firstlineno + 1
    with pytest.raises(ExceptionGroup) as caught:
        outcome.unwrap()
    assert "Global rank 0 is not part of group" in str(caught.value.exceptions[0].__cause__), "what torch raised"


def test_each_root_is_told_of_those_that_name_it() -> None:
    (finding,) = run(names_each_others).findings
    assert finding.culprits == (0, 1, 2, 3)
    assert {side.ranks: side.did.split(",")[0] for side in finding.sides} == {
        (rank,): f"calls gather_object with root {(rank + 2) % 4}" for rank in range(4)
    }


def test_beside_another_error_nothing_is_said_of_it() -> None:
    outcome = run(is_refused_and_has_trouble)
    assert not outcome.findings
    assert {2, 3} <= {*outcome.culprits}


def sends_a_column() -> None:
    grid = torch.arange(8.0).reshape(4, 2)
    if dist.get_rank() == 1:
        dist.send(grid[:, 1], dst=0)
    elif dist.get_rank() == 0:
        dist.recv(torch.zeros(4), src=1)


def test_a_message_that_does_not_lie_in_order() -> None:
    (finding,) = run(sends_a_column).findings
    assert (finding.kind, finding.culprits) == (FindingKind.LAYOUT, (1,))
    assert "rank 1 calls send with a tensor that is not contiguous; give it .contiguous(), at " in finding.lines[0]


def scatters_two_kinds() -> None:
    pieces = [torch.ones(3) for _ in range(4)] if dist.get_rank() == 0 else None
    if pieces is not None:
        pieces[2] = pieces[2].double()
    dist.scatter(torch.zeros(3), pieces, src=0)


def scatters_what_is_left_over() -> None:
    table = torch.ones(10, 2)
    pieces = [piece.contiguous() for piece in torch.split(table, 3)] if dist.get_rank() == 0 else None
    dist.scatter(torch.zeros(3, 2), pieces, src=0)


def gathers_into_too_few() -> None:
    rows = [torch.zeros(2) for _ in range(4 - (dist.get_rank() == 1))]
    dist.all_gather(rows, torch.ones(2))


def has_one_that_cannot_be_divided() -> None:
    given = torch.ones(8 + (dist.get_rank() == 3))
    dist.all_to_all_single(torch.zeros(8), given)


@pytest.mark.parametrize(
    ("body", "kind", "culprit"),
    [
        (scatters_two_kinds, FindingKind.DATATYPE, 0),
        (scatters_what_is_left_over, FindingKind.SIZE, 0),
        (gathers_into_too_few, FindingKind.SIZE, 1),
        (has_one_that_cannot_be_divided, FindingKind.SIZE, 3),
    ],
)
def test_tensors_that_do_not_fit(body: Callable[[], None], kind: FindingKind, culprit: int) -> None:
    (finding,) = run(body).findings
    assert (finding.kind, finding.culprits) == (kind, (culprit,))


def test_those_that_are_in_what_another_failed_in_do_not_wait_for_the_deadline() -> None:
    with World(4, contracts=False) as world:
        outcome = world.run(has_one_that_cannot_be_divided, deadline=DEADLINE_S)
    assert (outcome.culprits, outcome.victims) == ((3,), (0, 1, 2))
    assert outcome.elapsed < DEADLINE_S / 2


def test_who_expects_it_passes() -> None:
    assert run(expects_it).ok
