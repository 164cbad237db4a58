"""What a strike is: one method over the call and `proceed`, and a declaration of where it makes sense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from rankdrill.step import Kind

if TYPE_CHECKING:
    from rankdrill.boundary import Boundary, Call, Proceed

__all__ = ["AROUND", "Argument", "Number", "Steps", "Strike", "When", "around", "at"]
__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test

Number = int | float
Steps = Mapping[Kind, frozenset[str]]


class When(StrEnum):
    """Where a strike falls, seen from the step: before it, after it is over, or `AT` it, in its place."""

    BEFORE = "before"
    AFTER = "after"
    AT = "at"


AROUND = (When.BEFORE, When.AFTER)


def around(steps: Steps) -> Mapping[When, Steps]:
    """Before or after any of `steps`."""
    return {When.BEFORE: steps, When.AFTER: steps}


def at(steps: Steps) -> Mapping[When, Steps]:
    """At any of `steps`."""
    return {When.AT: steps}


@dataclass(frozen=True, slots=True)
class Argument:
    """A number that a strike takes: what it is called, its type and its bounds, both included."""

    name: str
    type: type[int] | type[float]
    least: Number
    most: Number
    unit: str = ""
    default: Number | None = None

    def __str__(self) -> str:
        given = f"={self.default}" if self.default is not None else ""
        return f"{self.name}{given}"


class Strike:
    """One fault, armed on one rank. Subclasses declare themselves and override `strike`, or `act`.

    - `does` says in one sentence what it does; `seen` what a real system shows when it happens;
    - `on` holds the steps where it makes sense, apart for before, after and at them: the ops of each kind;
    - `when` holds those of before, after and at that `on` has;
    - `survivable` says whether the struck process can go on;
    - `bends` says that it sets its rank apart from the others, so that what they do next may not fit together;
    - `replaces` says that the struck step is not taken: what is done instead are steps of their own.
    """

    name: ClassVar[str]
    does: ClassVar[str]
    seen: ClassVar[str]
    on: ClassVar[Mapping[When, Steps]]
    when: ClassVar[tuple[When, ...]]
    arguments: ClassVar[tuple[Argument, ...]] = ()
    survivable: ClassVar[bool] = True
    bends: ClassVar[bool] = False
    replaces: ClassVar[bool] = False

    def __init__(self, at: When, values: tuple[Number, ...], boundary: Boundary) -> None:
        self.at = at
        self.values = values
        self.boundary = boundary

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "on"):
            cls.when = tuple(cls.on)
            cls.__doc__ = cls.__doc__ or cls.does

    @classmethod
    def meant_for(cls, kind: Kind, op: str, when: When | None = None) -> bool:
        """Whether it makes sense at this kind of step, `when` being None for any of before, after and at."""
        return any(op in cls.on[each].get(kind, ()) for each in cls.when if when in (None, each))

    def fits(self, call: Call) -> bool:
        """Whether it makes sense at this very step; one that it does not fit is not counted."""
        return True

    def strike(self, call: Call, proceed: Proceed) -> Any:
        """Strike: do what is to be done before, at or after the call, and, unless it is to be prevented, proceed."""
        if self.at is When.BEFORE:
            self.act(call)
            return proceed(call)
        result = proceed(call)
        _finish(result)
        self.act(call)
        return result

    def act(self, call: Call) -> None:
        """What happens before or after the call."""
        raise NotImplementedError

    def linger(self, call: Call, proceed: Proceed) -> Any:
        """Pass a step that is not struck: for strikes that prepare, or whose effect lasts."""
        return proceed(call)


def _finish(result: Any) -> None:
    # A collective is over when its work is; `after` must not come while it is under way.
    if hasattr(result, "is_completed"):
        result.wait()
