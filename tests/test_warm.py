"""docs/warm.md lists all that is put back, and whose functions are watched."""

from __future__ import annotations

import pydoc
import re
from pathlib import Path

from rankdrill.plugin.pool import MAX_WARM
from rankdrill.worlds.processes.state import watch
from rankdrill.worlds.processes.state.settings import SETTINGS

WARM = (Path(__file__).parents[1] / "docs" / "warm.md").read_text()


def test_the_table_has_every_setting_and_no_other() -> None:
    rows = WARM.split("|---|---|\n")[1].split("\n\n")[0]
    assert re.findall(r"^\| (.+?) \| ", rows, re.MULTILINE) == [setting.name for setting in SETTINGS]


def test_all_that_is_watched_is_named() -> None:
    listed = WARM.split("of these was replaced by hand: ")[1].partition(". ")[0]
    named = [pydoc.locate(name) for name in re.findall(r"`([\w.]+)`", listed)]
    assert list(map(id, named)) == list(map(id, watch._OWNERS))


def test_the_bounds_it_names_are_those_there_are() -> None:
    assert f"up to {MAX_WARM} such worlds" in WARM
    assert f"within {watch.THREADS_END_S} s" in WARM
