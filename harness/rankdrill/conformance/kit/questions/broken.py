"""What a gather is asked with something broken: a payload, a rank, the disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from rankdrill.conformance.adapter import Adapter
from rankdrill.conformance.kit.on_rank.script import Call
from rankdrill.conformance.kit.questions.question import After, Broken, Question
from rankdrill.conformance.kit.questions.spoiling import spoil
from rankdrill.conformance.kit.questions.unbroken import WRITTEN
from rankdrill.conformance.kit.samples.chosen import samples_of
from rankdrill.conformance.kit.samples.hostile import hostile_to
from rankdrill.conformance.promises import Promise
from rankdrill.step import Kind

__all__ = ["ask_contained", "ask_survives"]

VERY_LATE_S = 1.5
_DISK = {
    "has a full disk": "full at file.*",
    "loses what it writes": "missing after file.write",
    "writes half of a file": "torn after file.write",
    "sees files late": "late(0.5) at file.*",
}
_LEFT = {Kind.FILE: "files", Kind.SHM: "segments"}


def ask_contained(adapter: Adapter, sizes: Sequence[int]) -> Iterator[Question]:
    """One rank cannot contribute: all have to raise, and the next call has to work."""
    calls = tuple(Call(samples_of(adapter)[0], turn) for turn in range(3))
    for (turn, size), (number, spoiled) in product(enumerate(sizes), enumerate(hostile_to(adapter))):
        rank = 0 if (turn + number) % 2 else size - 1  # on each end, in some world
        yield Question(Promise.CONTAINED, f"{spoiled} on rank {rank}", size, spoil(calls, rank, spoiled))


def ask_survives(adapter: Adapter, sizes: Sequence[int]) -> Iterator[Question]:
    """A rank dies, freezes or is late, or its disk fails."""
    calls = (Call(samples_of(adapter)[0], 0),)
    for (turn, size), kind, first in product(enumerate(sizes), WRITTEN, (True, False)):
        for rank in sorted({0, size - 1}) if len(sizes) == 1 else [size - 1 if (turn + first) % 2 else 0]:
            name = f"rank {rank} killed at its {'first' if first else 'last'} {kind}"
            yield _struck(name, size, calls, After(rank, kind, "kill", first, "before"))
    size = max(sizes)
    for rank in sorted({0, size - 1}):
        frozen = After(rank, Kind.COLLECTIVE, "stop", first=True, when="before")
        yield _struck(f"rank {rank} frozen at its first collective", size, calls, frozen)
        late = After(rank, Kind.COLLECTIVE, f"delay({VERY_LATE_S})", first=True, when="before")
        yield _struck(f"rank {rank} {VERY_LATE_S} s late at its first collective", size, calls, late)
        for what, line in _DISK.items():
            broken = Broken(f"rank {rank}: {line}")
            yield Question(Promise.SURVIVES, f"rank {rank} {what}", size, calls, broken=broken)
    for kind, what in _LEFT.items():
        yield Question(Promise.SURVIVES, f"a run that crashed has left {what}", size, calls, crashed=kind)


def _struck(name: str, size: int, calls: tuple[Call, ...], after: After) -> Question:
    return Question(Promise.SURVIVES, name, size, calls, after)
