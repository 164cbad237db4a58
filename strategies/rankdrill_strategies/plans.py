"""Fault plans."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from rankdrill.drawing import DrawnFor, drawn_for
from rankdrill.errors import UsageError
from rankdrill.faults import OPS, STRIKES, Argument, Fault, Plan, Strike, What, When, Where, domain
from rankdrill.step import Kind
from rankdrill_strategies.arguments import check_count, check_flag

__all__ = ["plans"]

_MAX_FAULTS = 256  # as many as a plan may hold
_MAX_COUNT = 1000  # of what has no unit: elements, exit codes
_MILLISECONDS = 1000  # in a second; durations are drawn in these, so that they print as 0.25


@dataclass(frozen=True, slots=True)
class _Bounds:
    """How many faults may be drawn, and how far they may go; see `plans`."""

    min_faults: int
    max_faults: int
    max_nth: int
    max_seconds: float
    max_bytes: int
    wide: bool
    patterns: tuple[str, ...]


_Place = tuple[When, Kind | None, str | None]
_Places = dict[str, list[_Place]]  # by the name of the strike


def plans(
    world_size: int | st.SearchStrategy[int] | None = None,
    *,
    strikes: Iterable[str] | None = None,
    kinds: Iterable[Kind | str] | None = None,
    steps: Iterable[str] | None = None,
    min_faults: int = 0,
    max_faults: int = 2,
    max_nth: int = 3,
    max_seconds: float = 0.5,
    max_bytes: int = 1 << 20,
    patterns: Sequence[str] = (),
    wide: bool = False,
) -> st.SearchStrategy[Plan]:
    """Plans of `min_faults` to `max_faults` faults, valid in a world of `world_size` ranks.

    `world_size` is a number of ranks, or a strategy for it, or None on ranks: as many as there are.
    ``@pytest.mark.ranks(4, faults=plans())`` draws a plan for each example, and only faults that can strike there: the
    example runs once without any, and the plan is drawn from the steps that its ranks took. Elsewhere give `steps`.

    Each fault is a strike at a step where it makes sense, at one rank's first to `max_nth`-th such step, lasting
    at most `max_seconds` and taking at most `max_bytes`. `strikes` names those to choose from; `kinds` the kinds
    of steps; `steps` the very steps, as ``collective.all_reduce``: where it is not known what a run without faults
    took, a planned fault that finds no step to strike is an error. With `patterns`, some faults are for targets that
    match one of these globs. With `wide`, some faults are for all ranks, any op or every occurrence.

    Shrinks towards no faults; then rank 0, the first occurrence, the strikes in the order of the registry.
    Raises `UsageError` for what leaves nothing to draw.

        @given(plans(4, steps=["collective.all_reduce"], strikes=["kill", "delay", "skip"]))
        def test_a_fault_is_survived_or_named(plan): ...
    """
    bounds = _Bounds(
        check_count("min_faults", min_faults, at_least=0, at_most=_MAX_FAULTS),
        check_count("max_faults", max_faults, at_least=0, at_most=_MAX_FAULTS),
        check_count("max_nth", max_nth, at_least=1),
        _check_seconds(max_seconds),
        check_count("max_bytes", max_bytes, at_least=1),
        check_flag("wide", wide),
        _check_patterns(patterns),
    )
    if max_faults < min_faults:
        raise UsageError(f"min_faults={min_faults} is above max_faults={max_faults}; no plan has so many, swap them")
    places = _places(_check_strikes(strikes), _check_kinds(kinds), _check_steps(steps), wide)
    if world_size is None or isinstance(world_size, st.SearchStrategy):
        return _fitting(places, bounds, world_size)
    return _lists(places, bounds, DrawnFor(check_count("world_size", world_size, at_least=1)))


# ---------------------------------------------------------------------------------------------- drawing


def _lists(places: _Places, bounds: _Bounds, world: DrawnFor) -> st.SearchStrategy[Plan]:
    possible = {name: taken for name, of in places.items() if (taken := [at for at in of if _counts(at, world)])}
    if not possible:
        return st.nothing() if bounds.min_faults else st.just(Plan(()))
    # Two equal faults strike as one.
    faults = st.lists(
        _faults(possible, bounds, world), min_size=bounds.min_faults, max_size=bounds.max_faults, unique=True
    )
    return faults.map(lambda drawn: Plan(tuple(drawn)))


@st.composite
def _fitting(
    draw: Callable[[st.SearchStrategy[Any]], Any],
    places: _Places,
    bounds: _Bounds,
    sizes: st.SearchStrategy[int] | None,
) -> Plan:
    world = drawn_for()
    if sizes is not None:
        size = check_count("world_size", draw(sizes), at_least=1)
        world = world if world is not None and world.world_size == size else DrawnFor(size)
    if world is None:
        raise UsageError(
            "plans() without a world_size fits the world of a test marked ranks, and none is running here; "
            "give plans(4), or a strategy for the size"
        )
    plan: Plan = draw(_lists(places, bounds, world))
    return plan


@st.composite
def _faults(draw: Callable[[st.SearchStrategy[Any]], Any], places: _Places, bounds: _Bounds, world: DrawnFor) -> Fault:
    name = draw(st.sampled_from(list(places)))
    when, kind, op = place = draw(st.sampled_from(places[name]))
    counts = _counts(place, world)
    any_or_every = (None,) if bounds.wide else ()
    rank = draw(st.sampled_from((*counts, *any_or_every)))
    most = min(bounds.max_nth, max(counts.values()) if rank is None else counts[rank])
    nth = draw(st.sampled_from((*range(1, most + 1), *any_or_every)))
    pattern = draw(st.sampled_from((None, *bounds.patterns)))
    arguments = tuple(draw(_values(argument, bounds)) for argument in STRIKES[name].arguments)
    return Fault(Where(rank, when, kind, op, pattern, nth), What(name, arguments))


def _counts(place: _Place, world: DrawnFor) -> dict[int, int]:
    """How many steps at `place` each rank takes that takes any; without end where that is not known."""
    _, kind, op = place
    if world.steps is None:
        return dict.fromkeys(range(world.world_size), sys.maxsize)
    wanted = f"{kind}.{op}" if op is not None else f"{kind}."
    counts = (
        sum(count for step, count in taken.items() if (step == wanted if op is not None else step.startswith(wanted)))
        for taken in world.steps
    )
    return {rank: count for rank, count in enumerate(counts) if count}


def _values(argument: Argument, bounds: _Bounds) -> st.SearchStrategy[Any]:
    limit = {"seconds": bounds.max_seconds, "bytes": bounds.max_bytes}.get(argument.unit, _MAX_COUNT)
    most = max(argument.least, min(argument.most, limit))
    if argument.type is int:
        return st.integers(int(argument.least), int(most))
    smallest = int(argument.least * _MILLISECONDS)
    return st.integers(smallest, int(most * _MILLISECONDS)).map(lambda count: count / _MILLISECONDS)


def _places(strikes: list[type[Strike]], kinds: frozenset[Kind], steps: frozenset[str] | None, wide: bool) -> _Places:
    """Where each strike makes sense, in an order that does not depend on hashes."""
    found = {strike.name: _places_of(strike, kinds, steps, wide) for strike in strikes}
    left = {name: places for name, places in found.items() if places}
    if not left:
        meant = "; ".join(f"{strike.name} strikes {domain(strike)}" for strike in strikes[:3])
        raise UsageError(
            f"no strike asked for makes sense at {sorted(steps) if steps is not None else sorted(kinds)}; {meant}"
        )
    return left


def _places_of(strike: type[Strike], kinds: frozenset[Kind], steps: frozenset[str] | None, wide: bool) -> list[_Place]:
    places: list[_Place] = [
        (when, kind, op)
        for when, ops in strike.on.items()
        for kind in Kind
        for op in sorted(ops.get(kind, ()))
        if kind in kinds and (steps is None or f"{kind}.{op}" in steps)
    ]
    any_op = list(dict.fromkeys((when, kind, None) for when, kind, _ in places)) if wide else []
    return [*places, *any_op]


# ---------------------------------------------------------------------------------------------- checking


def _check_strikes(names: Iterable[str] | None) -> list[type[Strike]]:
    wanted = list(STRIKES) if names is None else _listed("strikes", names)
    for name in wanted:
        if name not in STRIKES:
            raise UsageError(f"strikes={wanted!r}: {name!r} is no strike; choose from {', '.join(STRIKES)}")
    return [strike for name, strike in STRIKES.items() if name in wanted]


def _check_kinds(kinds: Iterable[Kind | str] | None) -> frozenset[Kind]:
    wanted = list(Kind) if kinds is None else _listed("kinds", kinds)
    for kind in wanted:
        if kind not in set(Kind):
            raise UsageError(f"kinds={wanted!r}: {kind!r} is no kind of step; choose from {', '.join(Kind)}")
    return frozenset(Kind(kind) for kind in wanted)


def _check_steps(steps: Iterable[str] | None) -> frozenset[str] | None:
    if steps is None:
        return None
    known = {f"{kind}.{op}" for kind, ops in OPS.items() for op in ops}
    wanted = _listed("steps", steps)
    for step in wanted:
        if step not in known:
            raise UsageError(f"steps={wanted!r}: {step!r} is no step; write kind and op, as in collective.all_reduce")
    return frozenset(wanted)


def _check_patterns(patterns: Sequence[str]) -> tuple[str, ...]:
    wanted = [] if not patterns and not isinstance(patterns, str) else _listed("patterns", patterns)
    for pattern in wanted:
        if not isinstance(pattern, str) or not pattern:
            raise UsageError(f"patterns={wanted!r}: {pattern!r} is no pattern; write a glob, as in '*.part'")
    return tuple(wanted)


def _check_seconds(seconds: Any) -> float:
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 <= seconds < float("inf"):
        raise UsageError(f"max_seconds={seconds!r} is no time; give seconds from 0")
    return float(seconds)


def _listed(name: str, values: Iterable[Any]) -> list[Any]:
    if isinstance(values, str):
        raise UsageError(f"{name}={values!r} is one string; give a list, as in [{values!r}]")
    wanted = list(values)
    if not wanted:
        raise UsageError(f"{name}=[] leaves nothing to draw; name one, or leave it out for all")
    return wanted
