"""The examples run, and show what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
DEADLINE_S = 180


def shown_by(name: str) -> str:
    """What the example prints, run by itself."""
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    return ran.stdout


@pytest.mark.nightly
def test_a_training_that_is_killed_ends_as_if_it_had_not_been() -> None:
    assert shown_by("resume_training.py").splitlines() == [
        "undisturbed",
        "  from step  0: trained to step 30",
        "disturbed",
        "  from step  0: rank 2: kill after collective.all_reduce #37",
        "  from step 16: rank 0: crash before file.replace #2",
        "  from step 20: trained to step 30",
        "every sample seen exactly once per epoch: True",
        "weights equal to those of the undisturbed run, bit by bit: True",
        "files left: disturbed.pt, undisturbed.pt",
    ]


def test_a_gather_by_hand_hangs_and_its_replacement_does_not() -> None:
    by_hand, replaced = shown_by("drop_in_gather.py").split("from rankdrill.gathers import all_gather_list:\n")
    for rank in (0, 1, 3):
        assert f"  rank {rank} waits in collective.all_reduce #2 on 'default' (uint8[65536] sum) for rank 2" in by_hand
    assert by_hand.splitlines()[4:7] == [
        "    total 6",
        "    ValueError: encoded data exceeds max_size: 65545",
        "    total 56",
    ]
    assert by_hand.endswith("verdict: hang\n")
    error = "    OversizeError: all_gather_list failed together on all ranks. rank 2: data encodes to"
    assert [replaced.count(line) for line in ("    total 6\n", error, "    total 86\n")] == [4, 4, 4]
    assert replaced.endswith("verdict: together\n")
