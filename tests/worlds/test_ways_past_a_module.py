"""How a rank went past a forward pass, each of which makes the call that is missing: its line names no such call."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from rankdrill import World
from rankdrill.diagnosis import FindingKind

ODD = 2
DEADLINE_S = 30.0


def evaluates_fewer_batches() -> None:
    model = nn.parallel.DistributedDataParallel(nn.BatchNorm1d(2))  # whose buffers go round with each forward pass
    batches = [torch.ones(4, 2)] * (2 if dist.get_rank() == ODD else 3)
    seen = torch.zeros(1)
    for batch in batches:
        seen += model(batch).shape[0]
    dist.all_reduce(seen)


def test_the_end_of_a_loop_around_a_forward_pass_is_told() -> None:
    with World(3) as world:
        (finding,) = world.run(evaluates_fewer_batches, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, (ODD,))
    assert "goes past it by the end of `for batch in batches`, at" in finding.lines[0]
