"""What rankdrill's gathers are to cost beside the others: each ratio wanted, and the one measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from benchmarks.gathering.payloads import PAYLOADS
from benchmarks.gathering.results import Results, ratio
from benchmarks.gathering.setting import OURS, Way
from benchmarks.gathering.ways import WAYS

OBJECTS, OBJECTS_OURS = "torch-objects", "objects"
FEW_RANKS, SMALL_WORLD = 8, 4
BYTES, TENSORS, SKEW, ONE_MB = "64 MB", "64 MB tensors", "skew", "1 MB"
SMALL = tuple(payload.key for payload in PAYLOADS.values() if payload.small)


class Verdict(StrEnum):
    """Whether a target was met."""

    OK = "ok"
    MISSED = "missed"
    UNKNOWN = "not measured"


@dataclass(frozen=True)
class Target:
    """`what` is to be at most `wanted` times `beside`, or `unit`; with `inverse` it is shown as times faster."""

    what: str
    beside: str
    payload: str
    wanted: float
    measured: float | None
    verdict: Verdict
    inverse: bool = False
    unit: str = "×"  # noqa: RUF001 (a sign in a table)


def targets(results: Results) -> list[Target]:
    """All targets, in the order of the ways they are about."""
    return [
        *_shared_memory(results),
        *_padded(results),
        *_fixed_and_files(results),
        *_to_first(results),
        *_small(results),
        *_by_size(results),
        *_never_slower(results),
    ]


def _shared_memory(results: Results) -> Iterable[Target]:
    yield _time(results, "shm", "copies", BYTES, 1.5)
    yield _time(results, "shm", "copies", TENSORS, 0.9)
    yield from (_arriving(results, "shm", payload) for payload in (BYTES, TENSORS))
    yield from (_faster(results, "shm", OBJECTS, payload, 5) for payload in SMALL)


def _padded(results: Results) -> Iterable[Target]:
    for payload, faster, growth in ((BYTES, 3, 0.6), (TENSORS, 3.5, 0.4)):
        yield _faster(results, "padded", OBJECTS, payload, faster)
        yield _growth(results, "padded", OBJECTS, payload, growth)
    yield _faster(results, "padded", OBJECTS, SKEW, 6)
    yield _arriving(results, "padded", SKEW)


def _fixed_and_files(results: Results) -> Iterable[Target]:
    yield _faster(results, "fixed", "original-fixed", ONE_MB, 20)
    for payload, faster in ((BYTES, 12), (TENSORS, 1.3)):
        yield _faster(results, "files", "original-files", payload, faster)
        yield _arriving(results, "files", payload)


def _to_first(results: Results) -> Iterable[Target]:
    for key in ("workspace", "configs-files", "configs", "tensors"):
        for payload in (BYTES, TENSORS):
            yield _faster(results, key, WAYS[key].original, payload, 2)
            yield _arriving(results, key, payload)


def _small(results: Results) -> Iterable[Target]:
    for way in _ours():
        yield from (_time(results, way.key, OBJECTS, payload, 1.0) for payload in SMALL)


def _by_size(results: Results) -> Iterable[Target]:
    """What a world of few or many ranks is to make of small and middling payloads."""
    many = results.size > FEW_RANKS
    yield from (_faster(results, OBJECTS_OURS, OBJECTS, payload, 8 if many else 6) for payload in SMALL)
    yield _faster(results, OBJECTS_OURS, OBJECTS, ONE_MB, 3)
    if many:
        yield _time(results, OBJECTS_OURS, "copies", ONE_MB, 1.5)
    if results.size == SMALL_WORLD:
        cell = results.find(OBJECTS_OURS, SMALL[0])
        found = _target(
            results, OBJECTS_OURS, OBJECTS_OURS, "a call in a row", SMALL[0], 0.8, cell.ms if cell else None
        )
        yield replace(found, unit="ms")


def _never_slower(results: Results) -> Iterable[Target]:
    """Each way at the payload at which it does worst beside the one it replaces."""
    for way in _ours():
        all_sizes = [_time(results, way.key, way.original, payload, 1.0) for payload in PAYLOADS]
        yield max(all_sizes, key=lambda target: (target.verdict is Verdict.MISSED, target.measured or 0.0))


def _ours() -> list[Way]:
    return [way for way in WAYS.values() if way.family == OURS]


def _time(results: Results, key: str, beside: str, payload: str, wanted: float) -> Target:
    measured = results.slowdown(key, beside, payload)
    return _target(results, key, beside, f"{WAYS[beside].name}", payload, wanted, measured)


def _faster(results: Results, key: str, beside: str, payload: str, wanted: float) -> Target:
    measured = results.slowdown(beside, key, payload)
    return _target(results, key, beside, f"{WAYS[beside].name}", payload, wanted, measured, inverse=True)


def _growth(results: Results, key: str, beside: str, payload: str, wanted: float) -> Target:
    one, other = results.find(key, payload), results.find(beside, payload)
    measured = ratio(one.growth if one else None, other.growth if other else None)
    return _target(results, key, beside, f"growth of {WAYS[beside].name}", payload, wanted, measured)


def _arriving(results: Results, key: str, payload: str, wanted: float = 1.2) -> Target:
    measured = results.growth_of_arriving(key, payload)
    return _target(results, key, key, "growth: what arrives", payload, wanted, measured)


def _target(
    results: Results,
    key: str,
    beside: str,
    beside_name: str,
    payload: str,
    wanted: float,
    measured: float | None,
    inverse: bool = False,
) -> Target:
    if measured is None:  # a way that was to run and could not is a miss; one that nobody asked for is not
        cells = [results.find(way, payload) for way in (key, beside)]
        verdict = Verdict.MISSED if any(cell and cell.broken for cell in cells) else Verdict.UNKNOWN
    else:
        kept: Callable[[float, float], bool] = float.__ge__ if inverse else float.__le__
        verdict = Verdict.OK if kept(float(measured), float(wanted)) else Verdict.MISSED
    return Target(WAYS[key].name, beside_name, payload, wanted, measured, verdict, inverse)
