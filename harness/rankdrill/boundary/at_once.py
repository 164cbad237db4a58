"""The beaten path: a call that torch waits for before it returns, with nothing in its way, as nearly all calls are.

It is waited for here, so there is no handle to follow. What is returned, the backend's own, may be waited for again.
What a call costs that is watched is what is done here, so no more is: no step is made of it unless it fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankdrill.boundary.group_calls import CallingGroup, patience_ms_of
from rankdrill.boundary.habits import Habit

__all__ = ["at_once", "failed"]

_NO_NAMES: Mapping[str, Any] = {}


def at_once(
    group: CallingGroup,
    habit: Habit,
    opts: Any,
    method: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] = _NO_NAMES,
) -> Any:
    """Make the call that is `habit` by that `method` of `group`: number, write down, post, issue it, wait."""
    __tracebackhide__ = True
    boundary = group.boundary
    if habit.ledger is not boundary.ledger or habit.watch is not boundary.watch:
        habit.suit(group)
    stencil, record, inside = habit.stencil, -1, boundary.inside
    number = group.sequence.take()
    inside.depth += 1
    try:
        if stencil is not None:
            record = stencil.begin(number)
        try:
            if habit.enter is not None:
                habit.enter(number)
            # Not looked up before: a copy of the rank may have gone another way in there, and has other methods.
            work = getattr(group.inner, method)(*args, **kwargs)
        except BaseException as error:
            failed(group, habit, number, record, error, issued=False)
            raise
        if work is not None:
            if stencil is not None:
                stencil.wait(record, patience_ms_of(group, opts))
            try:
                work.wait()
            except BaseException as error:
                failed(group, habit, number, record, error, issued=True)
                raise
        if stencil is not None:
            stencil.end(record)
        return work
    finally:
        inside.depth -= 1


def failed(group: CallingGroup, habit: Habit, number: int, record: int, error: BaseException, issued: bool) -> None:
    """Such a call raised `error`, after it was issued or before."""
    group.boundary.fail(record, error)
    if not issued:
        group.take_back(habit.step.like(sequence=number), {})
