"""How well mistakes are told from nothing but what a recorded job left: the catalogue's programs, hung and killed.

    python benchmarks/recorded.py [--program 'missing.*'] [--seed 1 --take 20] [--correct] [--replay] [--json FILE]

Each program runs as a script does (see benchmarks/cataloguing/bare.py), without contracts, under `rankdrill.record`;
what still runs after the deadline is killed, and the directory explained. A mistake that is not noticed by a failure or
a hang is left out. Told are how many explanations name the kind, the ranks, and a guilty line; of correct programs, how
many get a cause that they do not have. With `--replay` each record that has a cause is played again, and it is
counted whether the same comes of it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch.distributed as dist
from benchmarks.cataloguing.bare import meet, wait_for_begin, wait_for_end
from rich.console import Console
from rich.table import Table
from tests.catalogue.programs import Program, Rank, catalogue, modules, program_named
from tests.catalogue.scoring import Judged, Verdict, lines_in
from torch.distributed import FileStore, PrefixStore  # type: ignore[attr-defined]

import rankdrill
from rankdrill.explain.explanation import Explanation
from rankdrill.explain.recording import explain_recording
from rankdrill.replay import beyond, play, score_of_recording

DEADLINE_S = 3.0
SIZE = 2 << 20
PATIENT = 4  # times the deadline of a program is that of playing it


@dataclass(frozen=True)
class Again:
    """What was explained of a record, and what came of playing it: `beyond` says why it need not be the same."""

    there: str
    here: str
    same: bool
    beyond: str


@contextmanager
def recorded(program: Program, deadline: float) -> Iterator[tuple[Path, bool]]:
    """The directory that `program` has left, killed after `deadline` seconds, and whether a rank failed or hung."""
    with tempfile.TemporaryDirectory() as name:
        place, record = Path(name), Path(name) / "record"
        with _started(program, place, record) as ranks:
            began = wait_for_begin(ranks, place)
            wait_for_end(ranks, began + deadline)
            showed = any(rank.exitcode != 0 for rank in ranks)
            for rank in ranks:
                rank.kill()
            for rank in ranks:
                rank.join()
        yield record, showed


def verdict_on(program: Program, record: Path) -> Verdict:
    """What is said of `program`, which has left `record`."""
    began = time.monotonic()
    return _read(explain_recording(record), program, time.monotonic() - began)


def played_again(record: Path, deadline: float) -> Again:
    """What comes of playing what is left in `record`."""
    score = score_of_recording(record)
    played = play(score, deadline=deadline)
    return Again(score.verdict, played.verdict, played.as_told(score), beyond(score))


@contextmanager
def _started(program: Program, place: Path, record: Path) -> Iterator[list[ForkServerProcess]]:
    context = get_context("forkserver")
    context.set_forkserver_preload(["__main__", *modules(), "rankdrill.recording"])
    ranks = [
        context.Process(target=_play, args=(program.place, index, program.ranks, str(place), str(record)))
        for index in range(program.ranks)
    ]
    try:
        for rank in ranks:
            rank.start()
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()


def _play(place: tuple[str, str], index: int, size: int, directory: str, record: str) -> None:
    here = Path(directory)
    with (here / f"{index}.err").open("w") as errors:
        os.dup2(errors.fileno(), sys.stderr.fileno())
        os.dup2(errors.fileno(), sys.stdout.fileno())
    os.environ.update(RANK=str(index), WORLD_SIZE=str(size))
    program = program_named(place)
    store = FileStore(str(here / "store"), size)
    try:
        _live(program, index, size, here, record, store)
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        sys.stderr.flush()
        sys.exit(1)


def _live(program: Program, index: int, size: int, here: Path, record: str, store: FileStore) -> None:
    """As a script does, which ends when it is done. Only of one that is right do all stay until the last is."""
    meet(store, "begin", size)  # unseen: it was made before
    rankdrill.record(record, size=SIZE)
    dist.init_process_group("gloo", store=PrefixStore("gloo", store), rank=index, world_size=size)
    group = dist.group.WORLD
    assert group is not None
    shared = here / "shared"
    shared.mkdir(exist_ok=True)
    (here / f"{index}.up").touch()
    user = PrefixStore("user", FileStore(str(here / "user"), size))
    program.body(Rank(index, size, group, user, shared))
    if program.truth is None:
        meet(store, "end", size)
    if dist.is_initialized():  # a rank may have destroyed it itself
        dist.destroy_process_group()


def _read(found: Explanation, program: Program, seconds: float) -> Verdict:
    if not found.causes:
        return Verdict(noticed=False, seconds=seconds, text="; ".join(map(str, (*found.places, *found.fits))))
    finding = found.causes[0].finding
    shown = finding.lines[0] if finding.culprits else "\n".join(finding.lines)
    text = f"{found.causes[0].confidence}: " + "\n".join(finding.lines)
    ranks, accuses = frozenset(finding.ranks), bool(finding.culprits)
    return Verdict(True, seconds, str(finding.kind), ranks, accuses, lines_in(shown, program.file), 1, text)


def main() -> None:
    chosen = _options()
    programs = [each for each in catalogue() if each.runs_here and (each.truth is None) == chosen.correct]
    programs = [each for each in programs if not chosen.program or fnmatch(each.name, chosen.program)]
    if chosen.take:
        programs = random.Random(chosen.seed).sample(programs, min(chosen.take, len(programs)))
    console = Console(width=150)
    rows, counts = [], Counter[str]()
    for program in programs:
        counts["asked"] += 1
        with recorded(program, chosen.deadline if program.truth is not None else 60.0) as (record, showed):
            said = verdict_on(program, record)
            if chosen.replay and said.noticed:
                again = played_again(record, chosen.deadline * PATIENT)
                counts["played: the same" if again.same else "played: something else"] += 1
                if not again.same:
                    told = f"{again.there}, here {again.here}{again.beyond and f' ({again.beyond})'}"
                    console.print(f"{program.name}: played again: {told}", markup=False, highlight=False)
        if program.truth is not None and not showed:
            counts["neither failed nor hung"] += 1
            continue
        judged = Judged(program, said)
        wrong = ["noticed"] if not judged.right else list(judged.wrong_in)
        counts["told right" if not wrong else "told wrong"] += 1
        for part in wrong:
            counts[f"wrong in {part}"] += 1
        rows.append(_row(program, said, wrong))
        if wrong:
            console.print(f"{program.name}: wrong in {', '.join(wrong)}\n  {said.text}", markup=False, highlight=False)
    table = Table("what", "programs")
    for what, count in counts.items():
        table.add_row(what, str(count))
    console.print(table)
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


def _row(program: Program, said: Verdict, wrong: Sequence[str]) -> dict[str, object]:
    return {
        "program": program.name,
        "truth": program.truth.kind if program.truth is not None else "correct",
        "kind": said.kind,
        "ranks": sorted(said.ranks),
        "lines": sorted(said.lines),
        "wrong in": list(wrong),
        "text": said.text,
        "seconds": round(said.seconds, 3),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", metavar="PATTERN", default="")
    parser.add_argument("--replay", action="store_true", help="play each again from its record, and compare")
    parser.add_argument("--correct", action="store_true", help="programs without a mistake")
    parser.add_argument("--take", type=int, default=0, metavar="N", help="so many of them, drawn by --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--deadline", type=float, default=DEADLINE_S, metavar="SECONDS")
    parser.add_argument("--json", metavar="FILE", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
