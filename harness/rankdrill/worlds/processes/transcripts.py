"""What the ranks of one world printed, logged and wrote down: marked where a run begins, cut at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from rankdrill.worlds.processes.ledgers import Ledgers
from rankdrill.worlds.processes.output import OutputFile, Streamer, Tell, log_of, tell_on
from rankdrill.worlds.rank_outcome import RankOutcome

__all__ = ["Transcripts"]


class Transcripts:
    """The transcripts of `n` ranks in `directory`; with `tell_log` what ranks log is told line by line."""

    def __init__(self, directory: Path, n: int, tell_log: Tell | None) -> None:
        self.ledgers = Ledgers(directory)
        self._tell_log = tell_log
        stems = [directory / f"rank-{rank}" for rank in range(n)]
        self._out = [OutputFile(stem.with_suffix(".out")) for stem in stems]
        self._err = [OutputFile(stem.with_suffix(".err")) for stem in stems]
        self._logs = [OutputFile(log_of(directory, rank)) for rank in range(n if tell_log is not None else 0)]

    def begin(self, *, anew: bool) -> None:
        """A run begins here; if not `anew`, as the next part of a test."""
        self.ledgers.begin(anew=anew)
        for file in (*self._out, *self._err, *self._logs):
            file.mark()

    def streamers(self, out: TextIO | None) -> Iterator[Streamer]:
        """What tells new lines of this run while they come, on `out` those that ranks print."""
        if out is not None:
            yield Streamer(dict(enumerate(zip(self._out, self._err, strict=True))), tell_on(out))
        if self._tell_log is not None:
            yield Streamer({rank: [file] for rank, file in enumerate(self._logs)}, self._tell_log)

    def complete(self, outcomes: Sequence[RankOutcome], faults: int) -> list[RankOutcome]:
        """`outcomes` with what their ranks printed and wrote down in this run, under a plan of so many faults."""
        texts = [(self._out[one.rank].text(), self._err[one.rank].text()) for one in outcomes]
        written = self.ledgers.of_this_run([one.rank for one in outcomes], faults)
        return [one.with_transcript(*text, *ledger) for one, text, ledger in zip(outcomes, texts, written, strict=True)]

    def close(self) -> None:
        self.ledgers.close()
