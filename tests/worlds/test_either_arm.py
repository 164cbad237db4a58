"""One line with two calls, of which a run makes one: what sets ranks apart there is what they gave, not a round."""

from __future__ import annotations

import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind

DEADLINE_S = 60.0


def test_another_root_in_the_other_arm_beside_a_comprehension(four: World) -> None:
    """Who is the root has a list of tensors, made in the same line: the call itself is in no loop."""

    def body() -> None:
        me, own = dist.get_rank(), torch.ones(3)
        dist.scatter(own, [own for _ in range(4)] if me == 3 else None, src=3) if me == 1 else dist.scatter(own, [torch.ones(3) for _ in range(4)] if me == 0 else None, src=0)  # fmt: skip  # noqa: E501

    (finding,) = four.run(body, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.ROOT, (1,))


def test_rounds_of_a_comprehension_are_told_as_such(four: World) -> None:
    """Each has another root and another size, and one rank is a round further on."""

    def body() -> None:
        sizes = [(root, torch.ones(root + 1)) for root in range(4)]
        odd = dist.get_rank() == 1
        [dist.broadcast(tensor, root) for root, tensor in sizes if not (odd and root == 1)]

    (finding,) = four.run(body, deadline=DEADLINE_S).findings
    assert finding.culprits == (1,)
    assert finding.kind is FindingKind.CALL_ORDERING, finding.lines
