"""What a gather is asked with nothing broken, promise by promise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from rankdrill.conformance.adapter import Adapter
from rankdrill.conformance.kit.on_rank.script import Call
from rankdrill.conformance.kit.questions.question import After, Question
from rankdrill.conformance.kit.questions.spoiling import spoil
from rankdrill.conformance.kit.samples.chosen import fitting, mutable_of, samples_of
from rankdrill.conformance.kit.samples.hostile import hostile_to
from rankdrill.conformance.kit.samples.objects import sized
from rankdrill.conformance.promises import Promise
from rankdrill.step import Kind

__all__ = ["WRITTEN", "ask_apart", "ask_clean", "ask_groups", "ask_repeatable", "ask_right"]

ROUNDS = 12  # in a row, with nothing between them
LATE_S = 0.2
MANY = 11  # ranks, the last of which is before the third where names are sorted as text
MUCH = 1 << 20  # bytes: beyond what goes in slots and small frames
HALVES = 4  # ranks, for two groups of two
WRITTEN = (Kind.COLLECTIVE, Kind.FILE, Kind.STORE, Kind.SHM)
_GROWING = (10, 100_000, 10, 5_000, 0, 70_000, 1)  # bytes
_PLACES = {
    "a long path": "/".join(["a name that goes on and on, as names made of settings do, " + "x" * 60] * 6),
    "a name that ends in blanks": "ends in blanks  ",
    "a name that looks like a pattern": "[a-c]*? {0} %s $HOME ~",
    "a name that is not ASCII": "naïve 日本",
}


def ask_right(adapter: Adapter, sizes: Sequence[int]) -> Iterator[Question]:
    """Every kind of payload; each rank in turn is the one that differs."""
    samples = samples_of(adapter)
    for size, sample in product(sizes, samples):
        yield Question(Promise.RIGHT, sample.name, size, tuple(Call(sample, turn) for turn in range(size)))
    twice = (Call(samples[0], 0), Call(samples[0], 1))
    yield Question(Promise.RIGHT, "alone in the world", 1, twice)
    yield Question(Promise.RIGHT, "more ranks than one digit counts", MANY, twice)
    for what, where in _PLACES.items():
        yield Question(Promise.RIGHT, f"in a directory of {what}", min(sizes), twice, where=where)


def ask_repeatable(adapter: Adapter, sizes: Sequence[int]) -> Iterator[Question]:
    """Calls in a row, of other sizes, by ranks that are late or slow, and beside another job."""
    plain = samples_of(adapter)[0]
    row = tuple(Call(plain, turn) for turn in range(ROUNDS))
    for size in sizes:
        yield Question(Promise.REPEATABLE, f"{ROUNDS} calls in a row", size, row)
        if adapter.takes == "objects":
            growing = enumerate(count for count in _GROWING if fitting(count, adapter))
            calls = tuple(Call(sized(count), turn, fits=True) for turn, count in growing)
            yield Question(Promise.REPEATABLE, "sizes that grow and shrink", size, calls)
        for rank in sorted({0, size - 1}):
            late = tuple(Call(plain, turn, late=((rank, LATE_S / 4),)) for turn in range(4))
            yield Question(Promise.REPEATABLE, f"rank {rank} comes late", size, late)
            for kind, first in product(WRITTEN, (True, False)):
                after = After(rank, kind, f"delay({LATE_S})", first)
                which = "first" if first else "last"
                name = f"rank {rank} slow after its {which} {kind}"
                yield Question(Promise.REPEATABLE, name, size, row[:3], after)
        yield Question(Promise.REPEATABLE, "another job beside it", size, row[:5], beside=True)


def ask_groups(adapter: Adapter, sizes: Sequence[int]) -> Iterator[Question]:
    """Groups that are not the world."""
    plain = samples_of(adapter)[0]
    low, high = (0, 1), (2, 3)
    # Each call with payloads of its own: of halves that have the same nobody could tell that they are mixed up.
    calls = tuple(Call(plain, turn, high if turn % 2 else low) for turn in range(6))
    yield Question(Promise.GROUPS, "both halves at once", HALVES, calls)
    yield Question(Promise.GROUPS, "one half alone", HALVES, tuple(Call(plain, turn, high) for turn in range(2)))
    yield Question(Promise.GROUPS, "without rank 0", 3, tuple(Call(plain, turn, (1, 2)) for turn in range(2)))
    by_half = tuple(Call(plain, turn, low) for turn in range(2))
    yield Question(Promise.GROUPS, "one half, and then a new group of all", HALVES, by_half, regroup=True)
    mixed = tuple(Call(plain, turn, (1, 2) if turn % 2 else None) for turn in range(4))
    yield Question(Promise.GROUPS, "a group and all in turn", 3, mixed)
    alone = tuple(Call(plain, turn, (1,)) for turn in range(2))
    yield Question(Promise.GROUPS, "a group of one", 2, alone)
    if adapter.takes == "objects" and fitting(3_000, adapter):
        counts = (2_000, 3_000, 1_000)
        members = (None, (1, 2), (1, 2))
        growing = tuple(
            Call(sized(count), turn, its, fits=True)
            for turn, (count, its) in enumerate(zip(counts, members, strict=True))
        )
        yield Question(Promise.GROUPS, "larger payloads in a smaller group", 3, growing)


def ask_clean(adapter: Adapter, sizes: Sequence[int]) -> Iterator[Question]:
    """What calls leave and change, of those that worked and of one that failed."""
    calls = tuple(Call(samples_of(adapter)[0], turn) for turn in range(3))
    for turn, size in enumerate(sizes):
        yield Question(Promise.CLEAN, "after calls that worked", size, calls, watched=True)
        if adapter.takes == "objects" and fitting(MUCH, adapter):
            much = tuple(Call(sized(MUCH), turn) for turn in range(3))
            yield Question(Promise.CLEAN, "after calls with much to say", size, much, watched=True)
        for spoiled in hostile_to(adapter)[turn % len(sizes) :: len(sizes)]:  # each of them in some world
            yield Question(Promise.CLEAN, f"after {spoiled}", size, spoil(calls, 0, spoiled), watched=True)


def ask_apart(adapter: Adapter, sizes: Sequence[int]) -> Iterator[Question]:
    """Whether anything else changes with what was received."""
    calls = tuple(Call(mutable_of(adapter), turn, scrambles=True) for turn in range(3))
    for size in sizes:
        yield Question(Promise.APART, "all that was sent and received is changed", size, calls)
