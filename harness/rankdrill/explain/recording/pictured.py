"""A recorded job as a picture: the steps of its ranks, by one clock, and the stacks that a watchdog has left."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rankdrill.diagnosis import name_ranks
from rankdrill.explain.pictured import Left, most_steps, pictured
from rankdrill.explain.recording.evidence import Evidence, RankEvidence
from rankdrill.explain.recording.explaining import Look
from rankdrill.explain.recording.standing import Standing
from rankdrill.report import Picture
from rankdrill.watchdog.answered import answer_left_in

__all__ = ["picture_of_recording"]

MARGIN = 512  # records beside those that are shown, among which a cause may be


def picture_of_recording(look: Look, directory: Path, number: int | None = None) -> Picture:
    """The picture of what became of a job that was recorded in `directory`, of several runs as that `number`."""
    left = {
        each.rank: _left(each, here, look, directory)
        for each in look.standings
        if (here := look.evidence.ranks.get(each.rank)) is not None
    }
    which = ["--run", str(number)] if number is not None else []
    repeat = shlex.join(["rankdrill", "replay", *which, str(directory)])
    return pictured(look.explanation, left, repeat, _notes(look.evidence))


def _left(standing: Standing, here: RankEvidence, look: Look, directory: Path) -> Left:
    wait = look.waiting.get(standing.rank)
    most = most_steps(look.evidence.world_size) + MARGIN
    raw = here.view.raw[-most:]
    view = replace(here.view, raw=raw, first=here.view.first + len(here.view.raw) - len(raw))
    newest = [max(record.begin_ns, record.end_ns) for record in view.records]
    return Left(
        str(standing.how),
        wait.missing if wait is not None else None,
        view.records,
        here.view.dropped + len(here.view.raw) - len(raw),
        answer_left_in(directory, here.recorded.name, max(newest, default=0) - here.shift_ns),
    )


def _notes(evidence: Evidence) -> Iterator[str]:
    machines = {each.recorded.text("boot") for each in evidence.ranks.values() if each.recorded.text("boot")}
    if len(machines) < 2:
        return
    yield f"The clocks of {len(machines)} hosts are brought together by the collectives that their ranks had in common."
    if apart := evidence.by_time_of_day:
        yield (
            f"Not that of {name_ranks(apart)}: no collective tells, so what their host took for the time of day is "
            "believed. Their steps may have been earlier or later than they are shown beside the others'."
        )
