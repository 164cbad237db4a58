"""Draws plans: any strike at any step it is meant for."""

from __future__ import annotations

from hypothesis import strategies as st

from rankdrill.faults import STRIKES, Argument, Fault, Plan, Strike, What, Where
from rankdrill.faults.strike import Number

__all__ = ["faults", "plans"]

AWKWARD = ('*.part" every', "#3", "a\nb", "\\", "\x85\u2028", "\ud800")


def _number(argument: Argument) -> st.SearchStrategy[Number]:
    if argument.type is int:
        return st.integers(int(argument.least), int(argument.most))
    return st.floats(float(argument.least), float(argument.most))


@st.composite
def faults(draw: st.DrawFn) -> Fault:
    """One fault that can be."""
    strike: type[Strike] = draw(st.sampled_from(list(STRIKES.values())))
    when = draw(st.sampled_from(strike.when))
    kind = draw(st.none() | st.sampled_from(sorted(strike.on[when])))
    op = None if kind is None else draw(st.none() | st.sampled_from(sorted(strike.on[when][kind])))
    where = Where(
        draw(st.none() | st.integers(0, 5000)),
        when,
        kind,
        op,
        draw(st.none() | st.text(min_size=1) | st.sampled_from(AWKWARD)),
        draw(st.none() | st.integers(1, 2**32 - 1)),
    )
    args = tuple(draw(_number(argument)) for argument in strike.arguments)
    return Fault(where, What(strike.name, args))


def plans() -> st.SearchStrategy[Plan]:
    """Plans of a few faults."""
    return st.lists(faults(), max_size=4).map(lambda drawn: Plan(tuple(drawn)))
