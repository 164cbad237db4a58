"""Names that modules took before the boundary was in place: which are seen all the same, and which are listed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch.serialization

from rankdrill import World
from tests.conftest import Session

FAULTS = (Path(__file__).parents[2] / "docs" / "faults.md").read_text()

IN_A_TEMPLATE = """
import importlib.metadata
import rankdrill.worlds.processes.preload
import rankdrill.plugin.on_rank.session
for entry in importlib.metadata.entry_points(group="pytest11"):
    entry.load()
from rankdrill.boundary import names_before
for name in names_before():
    print(name, name.stdlib)
"""


@pytest.mark.nightly
def test_what_is_not_seen_is_listed_in_the_documentation() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_TEMPLATE], capture_output=True, text=True, check=True, timeout=120
    )
    names = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    assert names["torch.serialization.save"] == "False", "a package's is replaced"
    unseen = [name for name, stdlib in names.items() if stdlib == "True"]
    assert unseen
    assert [name for name in unseen if f"`{name}`" not in FAULTS] == []


def save_by_another_name(path: str) -> None:
    torch.serialization.save(1, path)


def test_a_name_that_torch_took_before_is_seen(tmp_path: Path) -> None:
    with World(1) as world:
        outcome = world.run(save_by_another_name, str(tmp_path / "one.pt"))
        outcome.unwrap()
    assert "save" in [record.step.op for record in outcome.ranks[0].ledger]


def test_a_name_that_a_test_module_takes_is_struck(pytester: pytest.Pytester, session: Session) -> None:
    pytester.makepyfile("""
from os import rename
import pytest

@pytest.mark.ranks(2, faults=["rank 1: io_error at file.rename"])
def test_it(rank_tmp_path, rank):
    (rank_tmp_path / "one").touch()
    if rank.index == 1:
        with pytest.raises(OSError, match="Input/output error"):
            rename(rank_tmp_path / "one", rank_tmp_path / "other")
    else:
        rename(rank_tmp_path / "one", rank_tmp_path / "other")
""")
    result = session("-p", "no:cacheprovider", "-p", "no:asyncio")
    result.assert_outcomes(passed=1)
