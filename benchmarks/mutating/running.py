"""Runs mutmut, in a copy of the project that is laid out as mutmut expects."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "STAGE", "lay_out", "learn", "run"]

ROOT = Path(__file__).parents[2]
STAGE = ROOT / "build" / "mutants"
MUTATED = STAGE / "mutants"
STATS = MUTATED / "mutmut-stats.json"
REACHED = STAGE / "reached.json"
_NOBODY = "no such mutant"


def lay_out(*, fresh: bool) -> None:
    """Copy what is mutated and what is asked. mutmut names modules by their path, and leaves out ``src`` alone."""
    if fresh:
        shutil.rmtree(STAGE, ignore_errors=True)
    elif not STATS.exists():
        raise SystemExit(f"{STAGE} holds no earlier run; leave --again out")
    for source in ("harness/rankdrill", "strategies/rankdrill_strategies"):
        _copy(ROOT / source, STAGE / "src" / Path(source).name)
    for name in ("tests", "fixtures", "docs", "benchmarks", "conftest.py", "pyproject.toml"):
        _copy(ROOT / name, STAGE / name)


def _copy(source: Path, target: Path) -> None:
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    else:
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "results"))


def learn() -> None:
    """Make the mutants, and find out which tests are to be asked about which function."""
    if REACHED.exists():
        shutil.copy2(REACHED, STATS)  # as it was learned, before it was narrowed down
    output = _mutmut([_NOBODY])  # it learns, and stops where it finds no mutant of that name
    if _NOBODY not in output:
        raise SystemExit(f"mutmut failed:\n{output[-4000:]}")
    shutil.copy2(STATS, REACHED)
    stats = json.loads(STATS.read_text())
    wanted = tomllib.loads((STAGE / "pyproject.toml").read_text())["tool"]["mutmut"]["tests_of"]
    asked: dict[str, list[str]] = {}
    for meta in sorted(MUTATED.rglob("*.py.meta")):
        for name in json.loads(meta.read_text())["exit_code_by_key"]:
            function = name.partition("__mutmut_")[0]
            if function not in asked:
                asked[function] = _asked(function, wanted, stats)
    stats["tests_by_mangled_function_name"] = asked
    STATS.write_text(json.dumps(stats))


def _asked(function: str, wanted: dict[str, list[str]], stats: dict[str, Any]) -> list[str]:
    """The tests of its module that reach it; all of them where none does in the process of the tests themselves."""
    module = function.rpartition(".")[0]
    files = next(files for pattern, files in wanted.items() if fnmatch(module, pattern))
    of_module = [test for test in stats["duration_by_test"] if any(fnmatch(test, f"{file}*") for file in files)]
    assert of_module, f"pyproject.toml names no test of {module}"
    reached = stats["tests_by_mangled_function_name"]
    reaching = set(reached.get(function, ()))
    if not reaching.intersection(of_module):
        return of_module
    elsewhere = set(of_module).difference(*reached.values())  # they reach nothing here: what they run are processes
    return [test for test in of_module if test in reaching | elsewhere]


def run(names: list[str], workers: int) -> None:
    """Try the mutants called `names`, `workers` at once."""
    output = _mutmut(names, workers)
    if "mutations/second" not in output:
        raise SystemExit(f"mutmut failed:\n{output[-4000:]}")


def _mutmut(names: list[str], workers: int = 1) -> str:
    # What the tests start imports the mutated modules too, and not the installed ones. The folders are made here:
    # Python takes one that is not there at its start for missing from then on.
    (MUTATED / "src").mkdir(parents=True, exist_ok=True)
    paths = os.pathsep.join([str(MUTATED / "src"), str(MUTATED)])
    done = subprocess.run(
        [Path(sys.executable).parent / "mutmut", "run", "--max-children", str(workers), *names],
        cwd=STAGE,
        # A nursery would have imported the modules for another mutant.
        env={**os.environ, "PYTHONPATH": paths, "RANKDRILL_KEEP_TEMPLATE": "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.stdout
