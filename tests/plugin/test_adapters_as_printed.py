"""The adapters of docs/conformance.md keep what they promise."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mpi.installed import needs_mpi
from tests.plugin.conftest import Ran

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
FOUND_ABOVE = """
import pickle
from rankdrill.conformance import conformance

def save_shard(payload, name, rank):
    with open(f"{name}-{rank}", "wb") as file: pickle.dump(payload, file)

def load_shard(name, rank):
    with open(f"{name}-{rank}", "rb") as file: return pickle.load(file)

class Gatherer:
    def __init__(self, group): self.group = group

    def gather(self, payload):
        received = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(received, payload, group=self.group)
        return received

def merge_metrics(payload, at):
    received = [None] * at.size
    dist.all_gather_object(received, payload, group=at.group)
    return [item for each in received for item in each]

def gather_over(comm, payload):
    return comm.allgather(payload)
"""


ADAPTERS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)[1:]
NAMES = [code.rpartition("\n\n")[2].split(" ")[0].strip() for code in ADAPTERS]
OVER_MPI = "TestOverMPI"
LONG = ("TestGatherer", "TestShards", "TestToFirst", OVER_MPI)


@pytest.mark.parametrize(
    "adapter",
    [
        pytest.param(code, id=name, marks=[*[pytest.mark.nightly] * (name in LONG), *[needs_mpi] * (name == OVER_MPI)])
        for name, code in zip(NAMES, ADAPTERS, strict=True)
    ],
)
def test_what_is_printed_keeps_its_promises(run: Callable[..., Ran], adapter: str) -> None:
    ran = run(f"{FOUND_ABOVE}\n{adapter}", "-k", "right or (repeatable and row) or alone")
    outcomes = ran.result.parseoutcomes()
    assert set(outcomes) <= {"passed", "xfailed", "xpassed", "deselected"}, ran.screen
    assert outcomes["passed"] >= 4


def test_there_are_five_and_one_over_mpi() -> None:
    assert len(ADAPTERS) == 6
    assert set(LONG) < set(NAMES)
