"""How a drill uses each strike: with which arguments, where relative to a step, and what becomes of the struck rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from rankdrill.conformance.caller_faults import CALLER_FAULTS
from rankdrill.conformance.survey import StrikePoint
from rankdrill.faults import FAMILIES, OPS, STRIKES, Fault, Strike, What, When, Where

__all__ = [
    "DEFAULT_STRIKES",
    "Effect",
    "Spread",
    "Use",
    "effect_of",
    "is_waited_out",
    "known_strikes",
    "lasts",
    "uses_of",
]

_LONGER_THAN_BRIEF = 1.3  # seconds: more than `Limits.brief`


class Effect(Enum):
    """What becomes of the struck rank."""

    ENDS = auto()  # its process ends
    STOPS = auto()  # it is stopped until the drill continues it
    LINGERS = auto()  # it is late
    FAILS = auto()  # something it did fails


class Spread(Enum):
    """At which of a rank's steps a strike is tried, if not thoroughly."""

    EACH_OP = auto()  # the first step of each op: file.open, file.replace, …
    EACH_KIND = auto()  # the first step of each kind: collective, file, …
    ONCE = auto()  # the first step that it is meant for


@dataclass(frozen=True)
class Use:
    """One strike as it is drilled: its arguments, where relative to a step, and at which steps.

    With a `payload` it is drilled with that one only.
    """

    strike: type[Strike]
    args: tuple[float, ...]
    whens: tuple[When, ...]
    spread: Spread = Spread.EACH_OP
    payload: str | None = None

    def fault(self, rank: int, point: StrikePoint) -> Fault:
        """The fault that strikes `rank` there."""
        return Fault(Where(rank, point.when, point.kind, point.op, nth=point.nth), What(self.strike.name, self.args))


# Where no arguments are given here, a strike's defaults are used.
_ARGUMENTS: Mapping[str, tuple[float, ...]] = {
    "delay": (0.2,),
    "hold_gil": (0.2,),
    "late": (0.3,),
    "limit": (1 << 20,),
    "oversize": (1 << 15,),  # twice what the drill gives fixed buffers room for
}
# A file that is not there yet, or not whole, may come: readers wait out their timeout.
_WAITED_OUT = frozenset({"missing", "stale", "torn"})
_LINGERING = frozenset({"delay", "hold_gil", "late"})
# What these break is the gather's own code, and gloo ends the process for some of them, whatever the gather does. A
# caller that skips or repeats a whole call is drilled by `CALLER_FAULTS`.
DEFAULT_STRIKES = tuple(strike.name for family, strikes in FAMILIES.items() if family != "desync" for strike in strikes)
# `stop` makes its peers wait each time.
_ONCE = frozenset({"abort", "exit", "limit", "stop"})
_LASTING = frozenset({"limit"})


def uses_of(strike: type[Strike]) -> Iterator[Use]:
    """How a drill uses `strike`."""
    args = _ARGUMENTS.get(strike.name)
    if args is None:
        args = tuple(argument.least for argument in strike.arguments if argument.default is None)
    # Only what must be mapped anew feels a limit: a payload that no free memory can hold.
    payload = "8mib" if strike.name == "limit" else None
    if strike.name in _ONCE:
        yield Use(strike, args, (When.BEFORE,), Spread.ONCE, payload)
    elif strike.on.get(When.BEFORE) == OPS and strike.name != "kill":
        # They may strike anywhere; what `kill` finds at each op, before and after, need not be found six times.
        yield Use(strike, args, (When.BEFORE,), Spread.EACH_KIND)
    else:
        yield Use(strike, args, tuple(strike.on))
    if strike.name == "delay":
        yield Use(strike, (_LONGER_THAN_BRIEF,), (When.BEFORE,), Spread.ONCE)


def effect_of(name: str) -> Effect:
    """The effect of the strike called `name`; of no strike, none."""
    if name == "stop":
        return Effect.STOPS
    if name in _LINGERING:
        return Effect.LINGERS
    strike = STRIKES.get(name)
    return Effect.FAILS if strike is None or strike.survivable else Effect.ENDS


def is_waited_out(name: str) -> bool:
    """Whether ranks wait out their timeout when the strike called `name` strikes."""
    return name in _WAITED_OUT or effect_of(name) in (Effect.STOPS, Effect.LINGERS)


def lasts(name: str) -> bool:
    """Whether the strike called `name` goes on after the step it strikes, so that the next call suffers too."""
    return name in _LASTING


def known_strikes() -> dict[str, str]:
    """All strikes and caller faults by name, each with what it does."""
    return {name: strike.does for name, strike in STRIKES.items()} | CALLER_FAULTS
