"""World size and faults of an example: drawn by the same engine as its arguments, and shrunk with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hypothesis import find, settings
from hypothesis.control import current_build_context
from hypothesis.errors import NoSuchExample, Unsatisfiable

from rankdrill.drawing import DrawnFor, drawing_for, size_told
from rankdrill.errors import UsageError
from rankdrill.faults import Plan
from rankdrill.plugin.marker import RanksMark
from rankdrill.worlds import Outcome

__all__ = ["JointDraw", "smallest_of"]


class JointDraw:
    """Draws what the marker leaves open of each example, once for each, when it is first asked for.

    A strategy among the arguments that is to fit the world asks before the body is reached, others never do. An
    explicit example has no choices to draw from: it gets the world that its arguments speak of, or the smallest.
    """

    def __init__(self, mark: RanksMark, size: int, strategies: Mapping[str, Any]) -> None:
        self._mark = mark
        self._strategies = strategies
        self._smallest = size
        self._example: Any = None  # what the engine draws the present one from
        self._size = size
        self._steps: tuple[Counter[str], ...] | None = None

    def world(self, given: Mapping[str, Any] | None = None) -> DrawnFor:
        """The world that the present example is for; of an explicit one, which is `given` its arguments, too."""
        data = current_build_context().data
        if data is not self._example:
            self._example, self._steps = data, None
            self._size = self._smallest
            if self._mark.drawn_size is not None:
                self._size = self._told_size(given or {}) if _explicit() else self._draw_size()
        return DrawnFor(self._size, self._steps)

    def plan(self) -> Plan:
        """The faults of the present example, which has run without any, to the marker's strategy."""
        if self._mark.drawn_faults is None or _explicit():
            return Plan()
        plan = _draw(self._mark.drawn_faults)
        if not isinstance(plan, Plan):
            raise UsageError(f"the marker's faults drew {plan!r}, which is no Plan; write faults=plans(...)")
        return plan

    def took(self, outcome: Outcome) -> None:
        """The present example has run so: its faults are to find a step there."""
        self._steps = tuple(
            Counter(f"{record.step.kind}.{record.step.op}" for record in rank.ledger.records) for rank in outcome.ranks
        )

    def as_written(self, plan: Plan) -> str:
        """The marker that repeats what was drawn here; empty if nothing was."""
        if not self._mark.draws:
            return ""
        faults = f", faults={[str(fault) for fault in plan.faults]}" if plan.faults else ""
        return f"@pytest.mark.ranks({self._size}{faults})"

    def _told_size(self, given: Mapping[str, Any]) -> int:
        told = size_told(self._strategies, given)
        return self._smallest if told is None else _checked(told)

    def _draw_size(self) -> int:
        with drawing_for(None):
            return _checked(_draw(self._mark.drawn_size))


def smallest_of(mark: RanksMark) -> int:
    """The smallest world that the marker's strategy can draw; raises `UsageError` where that is none."""
    assert mark.drawn_size is not None
    try:
        return _checked(find(mark.drawn_size, lambda _: True, settings=settings(database=None, derandomize=True)))
    except (NoSuchExample, Unsatisfiable):
        raise UsageError(f"@pytest.mark.ranks({mark.drawn_size!r}) has no world size to draw") from None


def _draw(strategy: Any) -> Any:
    return current_build_context().data.draw(strategy)


def _explicit() -> bool:
    return current_build_context().data.max_choices == 0


def _checked(size: Any) -> int:
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise UsageError(f"the marker drew {size!r}, which is no world size; a world has 1 rank or more")
    return size
