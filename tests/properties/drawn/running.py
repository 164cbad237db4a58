"""Runs a drawn program on real ranks, and holds what is said of it against what is true."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch.distributed.distributed_c10d import PrefixStore

from rankdrill import World
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job
from tests.catalogue.drilling import read
from tests.catalogue.scoring import Verdict
from tests.properties.drawn.drawing import Drawn
from tests.properties.drawn.truths import Truth, truth_of
from tests.properties.drawn.writing import written

__all__ = ["Told", "Worlds", "worlds"]

DEADLINE_S = 10.0
PATIENCE_S = 60.0  # for correct programs: that a machine is slow is no false alarm


@dataclass(frozen=True)
class Told:
    """What was said of a program, and what is true."""

    drawn: Drawn
    source: str
    verdict: Verdict
    truth: Truth | None

    @property
    def wrong_in(self) -> tuple[str, ...]:
        """In what the verdict is wrong; in nothing, if it is strictly right."""
        said, truth = self.verdict, self.truth
        if truth is None or not said.noticed:
            return () if said.noticed == (truth is not None) else ("noticed",)
        checks = {
            "kind": said.kind in truth.kinds,
            "ranks": truth.names(said.ranks, accuses=said.accuses),
            "line": not truth.lines or bool(said.lines & truth.lines),
            "findings": said.findings == 1,
        }
        return tuple(name for name, holds in checks.items() if not holds)

    @property
    def is_false_alarm(self) -> bool:
        return self.truth is None and self.verdict.noticed

    @property
    def blames_the_innocent(self) -> bool:
        """Whether ranks are accused of it that have nothing to do with it."""
        truth, said = self.truth, self.verdict
        return truth is not None and said.noticed and said.accuses and truth.spares(said.ranks)

    def __str__(self) -> str:
        said = self.verdict
        told = f"{said.kind!r} by {sorted(said.ranks)} (accused: {said.accuses}) at lines {sorted(said.lines)}"
        numbered = "\n".join(f"{number:4} {line}" for number, line in enumerate(self.source.splitlines(), 1))
        return (
            f"wrong in {', '.join(self.wrong_in) or 'nothing'}\n{self.drawn.mistake}\n\n{numbered}\n\n"
            f"truth: {self.truth}\nsaid: {told if said.noticed else 'nothing'}\n\n{said.text}"
        )


class Worlds:
    """Worlds that are kept, one for each number of ranks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._worlds: dict[int, World] = {}
        self._count = 0

    def told_of(self, drawn: Drawn) -> Told:
        """Run the program, and say what rankdrill says of it."""
        text = written(drawn.program, drawn.mistake)
        self._count += 1
        file = self._directory / f"drawn_{self._count}.py"
        file.write_text(text.source)
        truth = truth_of(drawn.program, drawn.mistake, text)
        world = self._world(drawn.program.ranks)
        world.run(_nothing).unwrap()
        job = Job(_play, (str(file),), with_context=True)
        outcome = world.run_job(job, deadline=DEADLINE_S if truth is not None else PATIENCE_S)
        return Told(drawn, text.source, read(outcome, str(file)), truth)

    def _world(self, ranks: int) -> World:
        if ranks not in self._worlds:
            self._worlds[ranks] = World(ranks, preload=[__name__])
        return self._worlds[ranks]

    def close(self) -> None:
        for world in self._worlds.values():
            world.discard()


@contextmanager
def worlds() -> Iterator[Worlds]:
    """`Worlds` whose ranks are ended afterwards."""
    with tempfile.TemporaryDirectory() as directory:
        kept = Worlds(Path(directory))
        try:
            yield kept
        finally:
            kept.close()


def _nothing() -> None:
    """For ranks that are to be up."""


def _play(context: RankContext, file: str) -> object:
    """On a rank: run the program of that file; what it returns is what comes of it."""
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # Ranks that are kept keep their store, and what earlier programs have set in it.
    return module.program(context.index, PrefixStore(Path(file).stem, context.store))
