"""A gather that a rank leaves out is told by its name, whatever it is made of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist

from rankdrill import World
from rankdrill.conformance import ways
from rankdrill.conformance.ways import At
from rankdrill.diagnosis import FindingKind
from tests.gathers.all_ways import tensor

ODD = 2
PATIENT_S = 3600.0  # who gives up sooner than the run is ended waits for nobody for ever


@pytest.mark.parametrize("name", ways.WAYS)
def test_a_gather_left_out_is_told_by_its_name(four: World, name: str, tmp_path: Path) -> None:
    def body() -> None:
        for turn in range(3):
            if turn != 1 or dist.get_rank() != ODD:
                ways.WAYS[name].call(tensor(turn), At(dist.group.WORLD, str(tmp_path), timeout=PATIENT_S))

    outcome = four.run(body, deadline=60.0)
    assert outcome.culprits == (ODD,), outcome.summary()
    (finding,) = outcome.findings
    assert finding.kind is FindingKind.MISSING
    assert f"rank {ODD} leaves out {name.partition('/')[0]}" in str(finding)
