"""Of two sizes that do not fit the header that went before tells which is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind

BOUND_S = 30.0
Size = Callable[[int], int]


def framed(sent: Size, expected: Size) -> None:
    """Each frame is as long as its header says, but for what the two make of that."""
    for length in (3, 5):
        if dist.get_rank() == 0:
            dist.send(torch.tensor([length]), 1)
            dist.send(torch.ones(sent(length)), 1)
        else:
            header = torch.zeros(1, dtype=torch.int64)
            dist.recv(header, 0)
            dist.recv(torch.ones(expected(int(header))), 0)


def with_its_shape(sent: Size, expected: Size) -> None:
    if dist.get_rank() == 0:
        dist.send(torch.tensor([0, 2, 4]), 1)
        dist.send(torch.ones(sent(2), 4), 1, tag=1)
    else:
        header = torch.zeros(3, dtype=torch.int64)
        dist.recv(header, 0)
        _kind, *shape = header.tolist()
        dist.recv(torch.ones(expected(shape[0]), shape[1]), 0, tag=1)


def as_told(length: int) -> int:
    return length


def one_more(length: int) -> int:
    return length + 1


@pytest.mark.parametrize("body", [framed, with_its_shape])
@pytest.mark.parametrize(("sent", "expected", "culprit"), [(one_more, as_told, 0), (as_told, one_more, 1)])
def test_who_does_not_do_as_the_header_says_is_at_fault(
    two: World, body: Callable[[Size, Size], None], sent: Size, expected: Size, culprit: int
) -> None:
    (finding,) = two.run(body, sent, expected, deadline=BOUND_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.SIZE, (culprit,))


def test_where_neither_does_nobody_is(two: World) -> None:
    (finding,) = two.run(framed, one_more, lambda length: length + 2, deadline=BOUND_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.SIZE, ())


def test_where_both_do_all_is_well(two: World) -> None:
    assert two.run(framed, as_told, as_told, deadline=BOUND_S).ok


def test_a_message_that_is_no_header_tells_nothing(two: World) -> None:
    def body() -> None:
        if dist.get_rank() == 0:
            dist.send(torch.tensor([3.0]), 1)
            dist.send(torch.ones(4), 1)
        else:
            dist.recv(torch.zeros(1), 0)
            dist.recv(torch.ones(3), 0)

    (finding,) = two.run(body, deadline=BOUND_S).findings
    assert not finding.culprits
