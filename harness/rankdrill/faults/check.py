"""Refuses faults that cannot be, with one line that says what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from rankdrill.errors import PlanError
from rankdrill.faults.registry import STRIKES
from rankdrill.faults.steps import MPI_OPS, OPS
from rankdrill.faults.strike import Argument, Number, Steps, Strike, When
from rankdrill.faults.where import What, Where
from rankdrill.step import Kind

__all__ = ["check_fault", "closest", "domain", "find_strike"]

MAX_RANK = 10**9 - 1  # a line of a plan has nine digits for it, and every fault can be printed as one
MAX_OCCURRENCE = 2**32 - 1  # the ledger's counters are of 32 bits
_FEW = 3


def check_fault(where: Where, what: What) -> tuple[Number, ...]:
    """The fault's arguments, defaults filled in. Raises `PlanError` for a fault that cannot be."""
    strike = find_strike(what.name)
    _check_rank(where.rank)
    _check_count(where.nth)
    if where.pattern is not None and (not isinstance(where.pattern, str) or not where.pattern):
        raise PlanError(f"{where.pattern!r} is no pattern; quote a glob, or leave `on` out for any target")
    _check_when(where.when, strike)
    _check_step(where, strike)
    return _arguments(what, strike)


def find_strike(name: str) -> type[Strike]:
    """The strike called `name`. Raises `PlanError`, with those that have a similar name."""
    if name not in STRIKES:
        raise PlanError(f"{name!r} is no strike; {closest(name, STRIKES)}")
    return STRIKES[name]


def closest(value: Any, known: Iterable[str]) -> str:
    """What to write instead of `value`: similar names, else all there are."""
    names = sorted(known)
    similar = difflib.get_close_matches(str(value), names, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(similar)}?" if similar else f"choose from {', '.join(names)}"


def _check_rank(rank: int | None) -> None:
    if rank is not None and (not isinstance(rank, int) or isinstance(rank, bool) or rank < 0):
        raise PlanError(f"{rank!r} is no rank; write a number from 0, or * for every rank")
    if rank is not None and rank > MAX_RANK:
        raise PlanError(f"no world has a rank {rank}; the highest is {MAX_RANK}")


def _check_count(nth: int | None) -> None:
    if nth is not None and (not isinstance(nth, int) or isinstance(nth, bool) or not 1 <= nth <= MAX_OCCURRENCE):
        raise PlanError(f"#{nth} is no occurrence; they count from #1, and `every` means each of them")


def _check_when(when: When, strike: type[Strike]) -> None:
    if when not in strike.when:
        allowed = " or ".join(f"`{each}`" for each in strike.when)
        raise PlanError(f"{strike.name} strikes {allowed} a step, not `{when}` it")


def _check_step(where: Where, strike: type[Strike]) -> None:
    if where.kind is None:
        if where.op is not None:
            raise PlanError(f"*.{where.op} names an op of no kind; write the kind, as in file.{where.op}, or *.*")
        return
    if where.kind not in set(Kind):
        raise PlanError(f"{where.kind!r} is no kind of step; {closest(where.kind, Kind)}")
    if where.op is not None and where.op not in OPS[where.kind]:
        raise PlanError(f"{where.kind}.{where.op} is no step; {closest(where.op, OPS[where.kind])}")
    meant = strike.on[where.when].get(where.kind, frozenset())
    if not meant or (where.op is not None and where.op not in meant):
        step = f"{where.when} {where.kind}.{where.op or '*'}"
        raise PlanError(f"{strike.name} has no meaning {step}; it strikes {domain(strike)}")


def domain(strike: type[Strike]) -> str:
    """The steps where `strike` makes sense, in words: ``at file.open, file.stat; after file.rename``."""
    parts: dict[str, list[str]] = {}
    for when, steps in strike.on.items():
        parts.setdefault(_steps(steps), []).append(when)
    return "; ".join(f"{' or '.join(when)} {steps}" for steps, when in parts.items())


def _steps(steps: Steps) -> str:
    if all(steps.get(kind) == ops for kind, ops in OPS.items()):
        return "any step"
    parts = []
    for kind, ops in steps.items():
        left_out = OPS[kind] - ops
        if not ops & MPI_OPS:  # of those that strike at torch's collectives nobody expects MPI's
            left_out -= MPI_OPS
        if len(left_out) < len(ops) and len(left_out) <= _FEW:
            parts.append(f"{kind}.*" + (f" but {', '.join(sorted(left_out))}" if left_out else ""))
        else:
            parts.append(f"{kind}.{'/'.join(sorted(ops))}")
    return ", ".join(parts)


def _arguments(what: What, strike: type[Strike]) -> tuple[Number, ...]:
    wanted = strike.arguments
    least = sum(argument.default is None for argument in wanted)
    if not least <= len(what.args) <= len(wanted):
        form = f"{strike.name}({', '.join(map(str, wanted))})" if wanted else f"{strike.name}, without arguments"
        raise PlanError(f"{what.name} got {len(what.args)} argument{'s' if len(what.args) != 1 else ''}; write {form}")
    defaults = tuple(argument.default for argument in wanted[len(what.args) :])
    given = (*what.args, *(default for default in defaults if default is not None))
    return tuple(_value(value, argument, strike) for value, argument in zip(given, wanted, strict=True))


def _value(value: Any, argument: Argument, strike: type[Strike]) -> Number:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if not numeric or not argument.least <= value <= argument.most or (argument.type is int and value % 1):
        kind = "whole number" if argument.type is int else "number"
        unit = f" of {argument.unit}" if argument.unit else ""
        raise PlanError(
            f"{strike.name}({value}): {argument.name} is a {kind}{unit} from {argument.least} to {argument.most}"
        )
    return argument.type(value)
