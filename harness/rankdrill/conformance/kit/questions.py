"""What a gather is asked, promise by promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rankdrill.conformance.adapter import Adapter
from rankdrill.conformance.kit.hostile import HOSTILE
from rankdrill.conformance.kit.on_rank import Call
from rankdrill.conformance.kit.samples import SAMPLES, Sample, sized
from rankdrill.conformance.promises import Promise
from rankdrill.step import Kind

__all__ = ["After", "Question", "questions_for"]

ROUNDS = 12  # in a row, with nothing between them
LATE_S = 0.2
HALVES = 4  # ranks, for two groups of two
_GROWING = (10, 100_000, 10, 5_000, 0, 70_000, 1)  # bytes


@dataclass(frozen=True)
class After:
    """What happens to a rank at the last step of kind `kind` that its first call takes, or at the `first`: it is late
    after that, or is killed before it."""

    rank: int
    kind: Kind
    strike: str
    first: bool = False


@dataclass(frozen=True)
class Question:
    """Calls to make in a world of `size` ranks, and what has to come of it: the right results; of calls that somebody
    spoils, an error on all ranks. With `after` the calls are made once undisturbed, to see where that is; `beside` is
    another job that does the same at the same time. `watched` asks what was left and changed, too.
    """

    promise: Promise
    name: str
    size: int
    calls: tuple[Call, ...]
    after: After | None = None
    beside: bool = False
    watched: bool = False

    @property
    def spoiled(self) -> bool:
        """Whether somebody cannot contribute."""
        return any(call.spoils is not None for call in self.calls)

    @property
    def id(self) -> str:
        return f"{self.name}-{self.size}ranks"


def questions_for(adapter: Adapter, sizes: Sequence[int]) -> list[Question]:
    """All questions that make sense for `adapter`, in worlds of `sizes`; kept promises' first."""
    samples = SAMPLES[adapter.takes]
    found = [
        question for promise, ask in _ASK.items() for size in sizes for question in ask(promise, size, samples, adapter)
    ]
    return list({(question.promise, question.id): question for question in found}.values())


def _right(promise: Promise, size: int, samples: Sequence[Sample], adapter: Adapter) -> Iterator[Question]:
    for sample in samples:
        # Each rank in turn is the one that differs.
        yield Question(promise, sample.name, size, tuple(Call(sample, turn) for turn in range(size)))


def _repeatable(promise: Promise, size: int, samples: Sequence[Sample], adapter: Adapter) -> Iterator[Question]:
    plain = samples[0]
    row = tuple(Call(plain, turn) for turn in range(ROUNDS))
    yield Question(promise, f"{ROUNDS} calls in a row", size, row)
    if adapter.takes == "objects":
        growing = tuple(Call(sized(count), turn) for turn, count in enumerate(_GROWING))
        yield Question(promise, "sizes that grow and shrink", size, growing)
    for rank in sorted({0, size - 1}):
        late = tuple(Call(plain, turn, late=((rank, LATE_S / 4),)) for turn in range(4))
        yield Question(promise, f"rank {rank} comes late", size, late)
        for kind in (Kind.COLLECTIVE, Kind.FILE, Kind.STORE, Kind.SHM):
            after = After(rank, kind, f"delay({LATE_S})")
            yield Question(promise, f"rank {rank} slow after its last {kind}", size, row[:3], after)
    yield Question(promise, "another job beside it", size, row[:5], beside=True)


def _groups(promise: Promise, size: int, samples: Sequence[Sample], adapter: Adapter) -> Iterator[Question]:
    plain = samples[0]
    low, high = (0, 1), (2, 3)
    calls = tuple(Call(plain, turn, members) for turn in range(3) for members in (low, high))
    yield Question(promise, "both halves at once", HALVES, calls)
    yield Question(promise, "one half alone", HALVES, tuple(Call(plain, turn, high) for turn in range(2)))
    yield Question(promise, "without rank 0", 3, tuple(Call(plain, turn, (1, 2)) for turn in range(2)))
    mixed = tuple(Call(plain, turn, (1, 2) if turn % 2 else None) for turn in range(4))
    yield Question(promise, "a group and all in turn", 3, mixed)


def _clean(promise: Promise, size: int, samples: Sequence[Sample], adapter: Adapter) -> Iterator[Question]:
    calls = tuple(Call(samples[0], turn) for turn in range(3))
    yield Question(promise, "after calls that worked", size, calls, watched=True)
    for spoiled in _spoiled(adapter):
        yield Question(promise, f"after {spoiled}", size, _spoil(calls, 0, spoiled), watched=True)


def _contained(promise: Promise, size: int, samples: Sequence[Sample], adapter: Adapter) -> Iterator[Question]:
    calls = tuple(Call(samples[0], turn) for turn in range(3))
    for spoiled in _spoiled(adapter):
        for rank in sorted({0, size - 1}):
            yield Question(promise, f"{spoiled} on rank {rank}", size, _spoil(calls, rank, spoiled))


def _survives(promise: Promise, size: int, samples: Sequence[Sample], adapter: Adapter) -> Iterator[Question]:
    calls = (Call(samples[0], 0),)
    for rank in sorted({0, size - 1}):
        for kind in (Kind.COLLECTIVE, Kind.FILE, Kind.STORE, Kind.SHM):
            for first in (True, False):
                after = After(rank, kind, "kill", first)
                which = "first" if first else "last"
                yield Question(promise, f"rank {rank} killed at its {which} {kind}", size, calls, after)


_Ask = Callable[[Promise, int, Sequence[Sample], Adapter], Iterator[Question]]
_ASK: dict[Promise, _Ask] = {
    Promise.RIGHT: _right,
    Promise.REPEATABLE: _repeatable,
    Promise.GROUPS: _groups,
    Promise.CLEAN: _clean,
    Promise.CONTAINED: _contained,
    Promise.SURVIVES: _survives,
}


def _spoiled(adapter: Adapter) -> list[str]:
    """What can be the matter with a payload: nothing with a number, or with a tensor."""
    return list(HOSTILE) if adapter.takes in ("objects", "dicts", "lists") else []


def _spoil(calls: Sequence[Call], rank: int, spoiled: str) -> tuple[Call, ...]:
    """The first call spoiled, the others as they are: they have to work."""
    return (replace(calls[0], spoils=rank, spoiled=spoiled), *calls[1:])
