"""The same mistakes on two ranks, through pytest: what a user waits for, and what a user is shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.planting.mistake import Mistake
from benchmarks.planting.search import Found

__all__ = ["ON_RANKS", "search_on_ranks"]

ON_RANKS = "on 2 ranks"
_ROOT = Path(__file__).parents[2]
_TEST = Path(__file__).with_name("ranked.py")
_BOUND_S = 3600.0


def search_on_ranks(
    mistakes: Sequence[Mistake], seeds: int, limit: int, done: Callable[[], None] = lambda: None
) -> list[Found]:
    """Find and shrink each of `mistakes` with each of `seeds` seeds: a session of pytest for each seed."""
    found = {mistake.name: Found(mistake.name, mistake.everyday, ON_RANKS, limit) for mistake in mistakes}
    slowest: dict[str, list[float]] = {name: [] for name in found}
    for number in range(seeds):
        for name, told in _session(mistakes, number, limit).items():
            of_mistake = found[name]
            of_mistake.examples.append(told["examples"])
            if told["examples"] is not None:
                slowest[name].append(told["seconds"])
                of_mistake.smallest = of_mistake.smallest or told["smallest"]
        done()
    for name, seconds in slowest.items():
        found[name].seconds = max(seconds, default=0.0)
    return list(found.values())


def _session(mistakes: Sequence[Mistake], number: int, limit: int) -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        (here / "asked.json").write_text(json.dumps({"mistakes": [each.name for each in mistakes], "limit": limit}))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "benchmarks.planting.telling"]
        command += ["-p", "rankdrill.plugin.hooks", "-p", "_hypothesis_pytestplugin", "-W", "ignore"]
        command += ["--rootdir", directory, "--hypothesis-seed", str(number), str(_TEST)]
        path = os.pathsep.join([str(_ROOT), *sys.path])
        alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": path, "RANKDRILL_FINDING": directory}
        ran = subprocess.run(
            command, cwd=directory, env={**os.environ, **alone}, capture_output=True, text=True, timeout=_BOUND_S
        )
        told = here / "told.json"
        of_each: dict[str, dict[str, Any]] = json.loads(told.read_text()) if told.exists() else {}
    if len(of_each) < len(mistakes):
        raise SystemExit(f"the pytest session failed:\n{ran.stdout}{ran.stderr}")
    return of_each
