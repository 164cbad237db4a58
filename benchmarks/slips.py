"""Whom rankdrill accuses of a slip that one rank of a correct program makes: that rank, nobody, or one that is right.

    python benchmarks/slips.py [--program 'messages.*'] [--kind 'left out'] [--most 400] [--seed 0] [--json FILE]

The programs are the correct ones of tests/catalogue; see benchmarks/slipping/slips.py for what is made of them. Of all
slips at which their ranks come `--most` are drawn. One that shows nowhere is not judged: it may make no difference. Nor
is one by which a rank raises, as an assertion does: whose that is depends on the program. The others are *right* where
that rank is named, alone or, of two ranks, as one of two at odds; *nobody* where no rank is accused; *wrong* where
another is.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.cataloguing.progress import watched
from benchmarks.slipping.places import who_comes_to
from benchmarks.slipping.slips import KINDS, Slip, slips_of
from rich.console import Console
from rich.table import Table
from tests.catalogue.drilling import Drill, drills
from tests.catalogue.programs import Program, catalogue, program_named
from tests.catalogue.scoring import Verdict

DEADLINE_S = 6.0
WORTHS = ("right", "nobody", "wrong", "raised", "unnoticed", "failed")


def main() -> int:
    chosen = _options()
    programs = [each for each in catalogue("correct") if _wanted(each, chosen.program)]
    slips = [slip for program in programs for slip in slips_of(program) if not chosen.kind or slip.kind in chosen.kind]
    random.Random(chosen.seed).shuffle(slips)
    console = Console(width=160)
    with tempfile.TemporaryDirectory(prefix="slips-") as place:
        sys.path.insert(0, place)
        os.environ["PYTHONPATH"] = os.pathsep.join((place, os.environ.get("PYTHONPATH", "")))
        with drills() as drill:
            drawn = list(islice(_come_to(slips, Path(place), drill), chosen.most))
            told = list(judged(watched(drawn, "slips", Console(stderr=True)), Path(place), drill))
    console.print(_table(told))
    for slip, worth, said in told:
        if worth in chosen.show:
            console.print(f"{worth}: {slip.name}\n    {said.text[:400]}", markup=False, highlight=False)
    if chosen.json:
        verdicts = [{"slip": slip.name, "worth": worth, "text": said.text} for slip, worth, said in told]
        chosen.json.write_text(json.dumps(verdicts, indent=1) + "\n")
    return 0


def _wanted(program: Program, patterns: Sequence[str] | None) -> bool:
    return program.runs_here and (not patterns or any(fnmatch(program.name, each) for each in patterns))


def _come_to(slips: Iterable[Slip], place: Path, drill: Drill) -> Iterator[Slip]:
    """Those that their ranks come to. Each program is run once for it."""
    known = dict[str, Collection[tuple[int, int, bool]]]()
    for slip in slips:
        name = slip.program.name
        if name not in known:
            known[name] = who_comes_to(slip.program, f"come_{len(known)}", place, drill)
        if (slip.number, slip.rank, bool(slip.round_)) in known[name]:
            yield slip


def judged(
    slips: Iterable[Slip], place: Path, drill: Drill, prefix: str = "slip_"
) -> Iterator[tuple[Slip, str, Verdict]]:
    """Each with what its verdict is worth, one of `WORTHS`. Modules go to `place`, where ranks look for such, too."""
    for number, slip in enumerate(slips):
        module = f"{prefix}{number}"
        (place / f"{module}.py").write_text(slip.source())
        try:
            said = drill.verdict_on(program_named((module, slip.program.body.__name__)), DEADLINE_S)
        except Exception as error:
            yield slip, "failed", Verdict(noticed=True, seconds=0.0, text=repr(error))
        else:
            yield slip, _worth(slip, said), said


def _worth(slip: Slip, said: Verdict) -> str:
    if not said.noticed:
        return "unnoticed"
    if said.kind == "lost rank":
        return "raised"
    if not said.accuses:
        return "right" if slip.program.ranks == 2 and slip.rank in said.ranks else "nobody"
    return "right" if said.ranks == {slip.rank} else "wrong"


def _table(told: Sequence[tuple[Slip, str, Verdict]]) -> Table:
    counts = Counter((slip.kind, worth) for slip, worth, _ in told)
    table = Table("", *WORTHS, title=f"{len(told)} slips")
    for kind in (*KINDS, "all"):
        kinds = KINDS if kind == "all" else (kind,)
        table.add_row(kind, *(str(sum(counts[each, worth] for each in kinds)) for worth in WORTHS))
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", nargs="+", metavar="PATTERN", help="programs by name, as in 'messages.*'")
    parser.add_argument("--kind", nargs="+", choices=KINDS, help="slips of these kinds (default: all)")
    parser.add_argument("--most", type=int, default=400, metavar="COUNT", help="slips (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of which are drawn (default: %(default)s)")
    parser.add_argument(
        "--show", nargs="*", choices=WORTHS, default=["wrong", "failed"], help="which are told (default: wrong failed)"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every verdict to FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
