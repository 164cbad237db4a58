"""The survey: which strikes fit at which of a rank's steps, found out by asking each strike at each step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rankdrill.faults import STRIKES, When
from rankdrill.step import Kind

if TYPE_CHECKING:
    from rankdrill.boundary import Boundary, Call, Proceed

__all__ = ["StrikePoint", "Surveyor"]


@dataclass(frozen=True, slots=True)
class StrikePoint:
    """Where a strike fits: relative to a step of that kind and op, the `nth` of those that it fits, from 1."""

    strike: str
    when: When
    kind: Kind
    op: str
    nth: int


@dataclass
class Surveyor:
    """An interceptor that lets every call pass and writes down in `points`, in order, what could have struck it."""

    boundary: Boundary
    points: list[StrikePoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._counts: Counter[tuple[str, When, Kind, str]] = Counter()
        self._armed = [
            strike(when, tuple(argument.least for argument in strike.arguments), self.boundary)
            for strike in STRIKES.values()
            for when in strike.on
        ]

    def __call__(self, call: Call, proceed: Proceed) -> Any:
        step = call.step
        for strike in self._armed:
            if strike.meant_for(step.kind, step.op, strike.at) and strike.fits(call):
                key = (strike.name, strike.at, step.kind, step.op)
                self._counts[key] += 1
                self.points.append(StrikePoint(*key, self._counts[key]))
        return proceed(call)
