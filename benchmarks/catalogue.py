"""How many mistakes are found, and how well they are told: by rankdrill, by plain gloo, and by what torch has for it.

    python benchmarks/catalogue.py [--only rankdrill] [--kind 'missing call'] [--program 'groups.*'] [--check]

Runs the programs of tests/catalogue, each with a deadline. Recall is the share of mistakes that are noticed at all, by
an error or a hang; specificity the share of correct programs that pass; strict the share of mistakes that are told in
one finding of the right kind with exactly the guilty ranks and a guilty line. Who does not tell kinds apart is not
asked for them. With `--check` it exits with 1 where rankdrill's verdicts are not as tests/catalogue/misses.toml says.

DETAIL is torch's own debug level. The flight recorder is torch's log of collectives: where a run fails or hangs, every
rank dumps it, and torch's analyzer reads the dumps. For gloo that does not work as it comes with torch 2.13, and is
helped along: nobody dumps by itself, and the dumps lack the groups, without which the analyzer fails on each of them.
Nor does it know of messages, roots and reduce operators: see benchmarks/cataloguing/flight_seam.py.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from benchmarks.cataloguing.bare import DETAIL, FLIGHT, GLOO, Bare
from benchmarks.cataloguing.document import page
from benchmarks.cataloguing.flight_seam import is_there
from benchmarks.cataloguing.progress import watched
from benchmarks.cataloguing.tables import by_kind, misses, overall
from rich.console import Console
from tests.catalogue.drilling import DEADLINE_S, drills
from tests.catalogue.misses import known_misses
from tests.catalogue.programs import KINDS, Program, catalogue
from tests.catalogue.scoring import Judged, Verdict

RANKDRILL = "rankdrill"
TOOLS = (RANKDRILL, GLOO, DETAIL, FLIGHT)
PATIENCE_S = 60.0  # for correct programs: that a machine is slow is no false alarm

Asked = Callable[[Program, float], Verdict]
"""Runs a program with a deadline in seconds."""


def main() -> int:
    chosen = _options()
    programs = [each for each in catalogue() if _wanted(each, chosen)]
    if not programs:
        raise SystemExit("no program is of that name and kind")
    if FLIGHT in chosen.only and not is_there():
        raise SystemExit(f"torch {torch.__version__} has no flight recorder for gloo: say --only, and leave it out")
    results = {tool: _run(tool, programs, chosen.deadline) for tool in chosen.only}
    console = Console(width=160)
    console.print(overall(results))
    console.print(by_kind(results))
    for tool, judged in results.items():
        if tool == RANKDRILL or len(results) == 1:
            for line in misses(judged):
                console.print(line, markup=False, highlight=False)
    if chosen.json:
        chosen.json.write_text(json.dumps(_as_data(results), indent=1) + "\n")
    if chosen.document and RANKDRILL in results:
        chosen.document.write_text(page(results[RANKDRILL]))
    surprises = list(_surprises(results.get(RANKDRILL, []))) if chosen.check else []
    for line in surprises:
        console.print(line, markup=False, highlight=False)
    return 1 if surprises else 0


def _surprises(judged: Sequence[Judged]) -> Iterator[str]:
    known = known_misses()
    for each in judged:
        name, strict = each.program.name, each.right and each.strict
        if strict and name in known:
            yield f"{name} is told strictly right by now: take it off the known misses ({known[name]})"
        if not strict and name not in known:
            yield f"{name} is not told right, and is no known miss"


def _wanted(program: Program, chosen: argparse.Namespace) -> bool:
    if not program.runs_here:
        return False
    kind = program.truth.kind if program.truth is not None else "correct"
    named = not chosen.program or any(fnmatch(program.name, pattern) for pattern in chosen.program)
    return named and (not chosen.kind or kind in chosen.kind)


def _run(tool: str, programs: Sequence[Program], deadline: float) -> list[Judged]:
    if tool == RANKDRILL:
        with drills() as drill:
            return _judged(tool, programs, deadline, drill.verdict_on)
    return _judged(tool, programs, deadline, Bare(tool).verdict_on)


def _judged(tool: str, programs: Sequence[Program], deadline: float, asked: Asked) -> list[Judged]:
    console = Console(stderr=True)
    return [Judged(program, _verdict(program, deadline, asked)) for program in watched(programs, tool, console)]


def _verdict(program: Program, deadline: float, asked: Asked) -> Verdict:
    if program.truth is None:
        deadline = max(deadline, PATIENCE_S)
    try:
        return asked(program, deadline)
    except Exception as error:  # a tool that fails itself has said nothing of the program; the others are still to come
        return Verdict(noticed=True, seconds=0.0, text=f"the tool failed: {error!r}")


def _as_data(results: dict[str, list[Judged]]) -> dict[str, Any]:
    machine = {"cores": os.cpu_count(), "torch": torch.__version__, "python": platform.python_version()}
    return {"machine": machine, "verdicts": {tool: list(map(_one, judged)) for tool, judged in results.items()}}


def _one(judged: Judged) -> dict[str, Any]:
    said, truth = judged.verdict, judged.program.truth
    return {
        "program": judged.program.name,
        "truth": truth.kind if truth is not None else "correct",
        "right": judged.right,
        "wrong in": judged.wrong_in,
        "kind": said.kind,
        "ranks": sorted(said.ranks),
        "lines": sorted(said.lines),
        "findings": said.findings,
        "seconds": round(said.seconds, 3),
        "text": said.text,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=TOOLS, default=list(TOOLS), help="who is asked (default: all)")
    parser.add_argument("--kind", nargs="+", choices=[*KINDS, "correct"], help="programs of these kinds")
    parser.add_argument("--program", nargs="+", metavar="PATTERN", help="programs by name, as in 'groups.*'")
    parser.add_argument(
        "--deadline", type=float, default=DEADLINE_S, metavar="SECONDS", help="for one mistake (default: %(default)s)"
    )
    parser.add_argument("--check", action="store_true", help="compare rankdrill's verdicts with the known misses")
    parser.add_argument("--document", metavar="FILE", type=Path, help="also write the page of the catalogue to FILE")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every verdict to FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
