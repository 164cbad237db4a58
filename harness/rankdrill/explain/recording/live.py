"""A recorded job on a terminal while it runs; where there is no terminal, a line whenever something has changed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Group
from rich.live import Live
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from rankdrill.diagnosis import name_ranks
from rankdrill.explain.explanation import Explanation
from rankdrill.explain.recording.sight import RankSeen, Sight, Sights
from rankdrill.explain.told import explained_lines, harmless
from rankdrill.launch.progress import MOST_LINES

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

__all__ = ["WIDE", "Lines", "picture", "watch"]

_Row: TypeAlias = tuple[str, str, str, str]
"""Of ranks that do the same: who they are, how many steps they took, what they do, and for how long."""

EVERY_S = 0.5
SHARE = 0.25  # of the time, at most, that looking takes
WIDE = 80  # columns, from which on all that is told of a rank stands beside each other
STANDSTILL_S = 5.0  # after which a line says where all are
LEAST_LINES = 4  # of an explanation, on a screen however short


def watch(directory: Path, console: Console, number: int | None = None) -> None:
    """Show a run recorded in `directory` until all its ranks are gone; Sights says which.

    Raises `UsageError` where nothing is recorded.
    """
    sights, lines = Sights(directory, number=number), Lines()
    sight, began = sights.look(), time.monotonic()
    if not console.is_terminal:
        while True:
            for line in lines.of(sight):
                console.print(f"{time.strftime('%H:%M:%S')} {line}", markup=False, soft_wrap=True)
            if sight.over:
                return
            sight = _next(sights)
    shown = picture(directory, sight, 0.0, console.width)
    with Live(shown, console=console, transient=True, auto_refresh=False) as live:
        while not sight.over:
            live.update(picture(directory, sight, time.monotonic() - began, console.width), refresh=True)
            sight = _next(sights)


def _next(sights: Sights) -> Sight:
    began = time.monotonic()
    time.sleep(EVERY_S)
    looked = time.monotonic()
    sight = sights.look()
    spent = time.monotonic() - looked
    time.sleep(max(0.0, spent / SHARE - (time.monotonic() - began)))
    return sight


def picture(directory: Path, sight: Sight, seconds: float, width: int = WIDE) -> RenderableType:
    """The screen: a line for each rank, for those that do the same where there are many, below what is explained."""
    shown = list(_rows(sight))
    head = f"{directory}, {sight.world_size} ranks, watched for {seconds:.0f} s, until Ctrl-C"
    table = _beside(shown[:MOST_LINES]) if width >= WIDE else _below(shown[:MOST_LINES])
    below: list[RenderableType] = [table]
    if len(shown) > MOST_LINES:
        below.append(Text(f"… and {len(shown) - MOST_LINES} other ways to be", style="dim"))
    if absent := sorted(set(range(sight.world_size)) - {each.rank for each in sight.ranks}):
        below.append(Text(f"{name_ranks(absent)} recorded nothing yet", style="dim"))
    titled = Text(harmless(head), style="dim")
    if sight.explanation is None:
        return Group(titled, *below)
    lines = [Text(harmless(text), style=style) for text, style in explained_lines(sight.explanation)]
    return _Screen(Group(titled, *lines), Group(Text(), *below))


@dataclass(frozen=True)
class _Screen:
    """`above`, cut to the lines that `below` leaves it on a screen: where ranks are is to be seen in any case."""

    above: RenderableType
    below: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        below = console.render_lines(self.below, options)
        lines = console.render_lines(self.above, options)
        room = max(options.size.height - len(below), LEAST_LINES)
        if len(lines) > room:
            rest = Text(f"… and {len(lines) - room + 1} lines more, when this ends", style="dim")
            lines = lines[: room - 1] + console.render_lines(rest, options)
        for line in (*lines, *below):
            yield from line
            yield Segment.line()


def _beside(rows: Sequence[_Row]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for column in ("ranks", "steps", "doing", "for"):
        kept = "fold" if column in ("ranks", "doing") else "ellipsis"
        justify = "right" if column in ("steps", "for") else "left"
        table.add_column(no_wrap=kept == "ellipsis", overflow=kept, justify=justify)  # type: ignore[arg-type]
    for ranks, steps, doing, long in rows:
        table.add_row(Text(ranks), Text(steps, style="dim"), Text(harmless(doing)), Text(long, style="yellow"))
    return table


def _below(rows: Sequence[_Row]) -> RenderableType:
    """Where there is no room beside each other: what a rank does, its line above all, is never cut off."""
    parts: list[RenderableType] = []
    for ranks, steps, doing, long in rows:
        parts.append(Text.assemble(ranks, "  ", (steps, "dim"), "  ", (long, "yellow"), overflow="fold"))
        parts.append(Padding(Text(harmless(doing), overflow="fold"), (0, 0, 0, 2)))
    return Group(*parts)


def _rows(sight: Sight) -> Iterator[_Row]:
    if len(sight.ranks) <= MOST_LINES:
        for each in sight.ranks:
            yield f"rank {each.rank}", f"{each.steps} steps", each.doing, _long([each])
        return
    alike: dict[str, list[RankSeen]] = {}
    for each in sight.ranks:
        alike.setdefault(each.doing, []).append(each)
    for doing, those in alike.items():
        least, most = min(each.steps for each in those), max(each.steps for each in those)
        steps = f"{most} steps" if least == most else f"{least} to {most} steps"
        yield name_ranks([each.rank for each in those]), steps, doing, _long(those)


def _long(those: list[RankSeen]) -> str:
    seconds = max(each.seconds for each in those)
    return f"for {seconds:.1f} s" if seconds >= 0 else ""


class Lines:
    """What has changed from one look to the next, in lines."""

    def __init__(self) -> None:
        self._gone: dict[int, str] = {}
        self._began = False
        self._stands = False
        self._told: object = None

    def of(self, sight: Sight) -> Iterator[str]:
        """What is new in `sight`."""
        if not self._began:
            steps = max((each.steps for each in sight.ranks), default=0)
            yield f"{len(sight.ranks)} of {sight.world_size} ranks, {steps} steps"
            self._began = True
        ended: dict[str, list[int]] = {}
        for each in sight.ranks:
            if each.gone and self._gone.get(each.rank) != each.doing:
                self._gone[each.rank] = each.doing
                ended.setdefault(each.doing, []).append(each.rank)
        yield from (harmless(f"{name_ranks(ranks)} {doing}") for doing, ranks in ended.items())
        yield from self._standing(sight)
        told = _of(sight.explanation)
        if told and told != self._told and sight.explanation is not None:
            yield from (harmless(text) for text, _ in explained_lines(sight.explanation) if text)
        self._told = told or self._told

    def _standing(self, sight: Sight) -> Iterator[str]:
        stands = sight.still >= STANDSTILL_S
        if stands and not self._stands:
            alike: dict[str, list[int]] = {}
            for each in sight.ranks:
                alike.setdefault(each.doing, []).append(each.rank)
            yield f"nobody has moved for {sight.still:.0f} s, or one has not come out of its call:"
            yield from (harmless(f"  {name_ranks(ranks)} {doing}") for doing, ranks in list(alike.items())[:MOST_LINES])
        elif self._stands and not stands and not sight.over:
            yield "they go on"
        self._stands = stands


def _of(explanation: Explanation | None) -> list[object]:
    """What tells an explanation from others: not for how long something has lasted by now."""
    if explanation is None:
        return []
    return [
        (cause.finding.kind, cause.finding.culprits, cause.finding.step, cause.confidence)
        for cause in explanation.causes
    ]
