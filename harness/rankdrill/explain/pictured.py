"""What a page or a trace shows of a job that is explained: the same as of a run, from what was left of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rankdrill.diagnosis import Finding
from rankdrill.explain.explanation import Explanation
from rankdrill.explain.told import explained_lines
from rankdrill.ledger import Record
from rankdrill.report import Picture
from rankdrill.report.picture import LEAST_STEPS, MOST_STEPS, Lane, stacks_of
from rankdrill.step import NO_SEQUENCE
from rankdrill.worlds.told import Block

__all__ = ["Left", "most_steps", "pictured"]

MOST_LANES = 1 << 14
AROUND = 4  # steps before and behind the call that a cause is about, where that is further back than what is shown
_CALL = re.compile(r"#(\d{1,18}) on '(.*)'$")
_INDENTED = "  "


@dataclass(frozen=True)
class Left:
    """What is left of one rank: its steps, newest last, of which more may be missing; its stack.

    `waits_for` is None if it waits for nobody, and empty if it waits in a call to which all have come.
    """

    status: str
    waits_for: tuple[int, ...] | None = None
    records: Sequence[Record] = ()
    dropped: int = 0
    stack: str = ""


def most_steps(ranks: int) -> int:
    """How many steps of each rank are shown."""
    return max(LEAST_STEPS, MOST_STEPS // max(1, ranks))


def pictured(
    explanation: Explanation, left: Mapping[int, Left], repeat: str, notes: Iterable[str] = (), *, issued: bool = False
) -> Picture:
    """The picture of what is explained, of whose ranks that much is `left`; `repeat` is a command.

    `notes` say how times are to be read, `issued` that they only say when calls began.
    """
    headline, *more = explained_lines(explanation)
    told = {rank: place.doing for place in explanation.places for rank in place.ranks}
    findings = tuple(_placed(cause.finding) for cause in explanation.causes)
    lanes = [
        _lane(rank, left.get(rank, Left("unknown")), told.get(rank, "left nothing"), explanation, findings)
        for rank in _ranks(explanation, left)
    ]
    return Picture(
        f"what became of {explanation.source}",
        not explanation.causes,
        headline[0],
        tuple(lanes),
        tuple(_blocks([text for text, _ in more])),
        findings,
        tuple(stacks_of((rank, its.stack) for rank, its in _culprits_first(explanation, left))),
        repeat,
        notes=tuple(notes),
        issued=issued,
        ended=False,
    )


def _ranks(explanation: Explanation, left: Mapping[int, Left]) -> Sequence[int]:
    """All of them; of a world that is larger than any page those of whom there is something to show."""
    if explanation.world_size <= MOST_LANES:
        return range(explanation.world_size)
    return sorted({*left, *explanation.culprits})[:MOST_LANES]


def _placed(finding: Finding) -> Finding:
    """`finding` with the group and number of its call, where only its words say them."""
    found = _CALL.search(finding.step)
    if finding.number != NO_SEQUENCE or found is None:
        return finding
    return replace(finding, group=found[2], number=int(found[1]))


def _lane(rank: int, left: Left, told: str, explanation: Explanation, findings: Sequence[Finding]) -> Lane:
    role = "culprit" if rank in explanation.culprits else "victim" if rank in explanation.victims else ""
    shown = _shown(left.records, most_steps(explanation.world_size), findings)
    dropped = left.dropped + len(left.records) - len(shown)
    return Lane(rank, left.status, told, role, _awaited(rank, left, findings), shown, dropped)


def _awaited(rank: int, left: Left, findings: Sequence[Finding]) -> tuple[int, ...]:
    """Whom `rank` waits for. Where all have come to its call, and not to the same one, those that came to another."""
    if left.waits_for or left.waits_for is None:
        return left.waits_for or ()
    for finding in findings:
        others = [side.ranks for side in finding.sides if rank not in side.ranks]
        if len(others) < len(finding.sides):
            return tuple(sorted({each for ranks in others for each in ranks}))
    return ()


def _shown(records: Sequence[Record], most: int, findings: Sequence[Finding]) -> tuple[Record, ...]:
    """The newest, and those around the call that a cause is about."""
    first = max(0, len(records) - most)
    calls = {(finding.group, finding.number) for finding in findings if finding.number != NO_SEQUENCE}
    met = [at for at in range(first) if (records[at].step.target, records[at].step.sequence) in calls]
    around = sorted({near for at in met for near in range(max(0, at - AROUND), min(first, at + AROUND + 1))})
    return (*(records[at] for at in around), *records[first:])


def _culprits_first(explanation: Explanation, left: Mapping[int, Left]) -> list[tuple[int, Left]]:
    return sorted(left.items(), key=lambda each: (each[0] not in explanation.culprits, each[0]))


def _blocks(lines: Sequence[str]) -> Iterator[Block]:
    """The lines as blocks: those without a heading, then each heading with what is below it."""
    heading, below = "", list[str]()
    for line in lines:
        if line.startswith(_INDENTED) or (line and not line.endswith(":")):
            below.append(line.removeprefix(_INDENTED) if heading else line)
        elif line:
            if below or heading:
                yield Block(heading, "\n".join(below))
            heading, below = line, []
    if below or heading:
        yield Block(heading, "\n".join(below))
