"""The beaten path: calls of a well known shape with nothing in their way, as nearly all are.

All that a watched call costs is what is done here. So each is found by its key, and made at once; and all of that is
done in C where it was built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import torch
import torch.distributed as dist

from rankdrill.boundary.at_once import at_once, failed
from rankdrill.boundary.callsites import call_site
from rankdrill.boundary.contracts import REDUCING, ROOTED
from rankdrill.boundary.gaps import MINDING_GAPS
from rankdrill.boundary.group_calls import CallingGroup, habit_of, patience_ms_of
from rankdrill.boundary.habits import Habit, Key, plain_keys_of, well_known
from rankdrill.boundary.work import NO_TIMEOUT
from rankdrill.native import hot
from rankdrill.step import Site

__all__ = ["method_of", "plain_path", "way_of"]

Method: TypeAlias = Callable[..., Any]
Path: TypeAlias = "Callable[[CallingGroup, tuple[Any, ...]], Any]"
"""Makes a call of a group with these arguments; `NotImplemented` where it is not one for the beaten path."""
Learn: TypeAlias = "Callable[[CallingGroup, tuple[Any, ...], Site | None, Key], Habit]"


def method_of(method: str, op: str, names: tuple[str, ...], make: Callable[[Path | None], Method]) -> Method:
    """What is `method` of groups: what `make` makes, which tries the path first that it is given, if there is one.

    In C it is the other way round: the path is the method, and has all calls that are not for it made by the other.
    """
    if not well_known(op, names):
        return make(None)
    learn = _learning(op, names)
    if hot is None:
        return make(plain_path(method, op, names, learn))
    kinds = torch.Tensor, dist.ReduceOp, NO_TIMEOUT, op in REDUCING, op in ROOTED, op in MINDING_GAPS
    beaten = hot.Beaten(method, make(None), len(names), op, *kinds, call_site, learn, failed, patience_ms_of)
    return cast(Method, beaten)


def way_of(group: CallingGroup) -> object | None:
    """What the path in C looks at each time, gathered in one object; to be made anew when any of it is another one."""
    if hot is None or not group.introduced:
        return None
    boundary, waiting = group.boundary, group.waits_at_the_end.waiting
    asked = boundary, boundary.inside, boundary.made, group.buckets, waiting, group.repertoire.by_key
    return cast(object, hot.Way(*asked, group.inner, group.sequence, group.patience_ms))


def plain_path(method: str, op: str, names: tuple[str, ...], learn: Learn) -> Path:
    """It in Python."""
    given, key_of = len(names), plain_keys_of(op)

    def take(group: CallingGroup, args: tuple[Any, ...]) -> Any:
        __tracebackhide__ = True
        boundary = group.boundary
        if (
            len(args) != given
            or not group.introduced
            or group.buckets.in_use  # they are numbered as they come
            or group.waits_at_the_end.waiting
            or not boundary.open
            or not boundary.undisturbed
        ):
            return NotImplemented
        site = call_site(2)
        key = key_of(args, site)
        if key is None:
            return NotImplemented
        habit = group.repertoire.by_key.get(key)
        if habit is None:
            habit = learn(group, args, site, key)
        group.last_used = boundary.made.use()
        return at_once(group, habit, args[-1], getattr(group.inner, method), args)

    return take


def _learning(op: str, names: tuple[str, ...]) -> Learn:
    def learn(group: CallingGroup, args: tuple[Any, ...], site: Site | None, key: Key) -> Habit:
        habit = habit_of(group, op, dict(zip(names, args, strict=True)), site)
        group.repertoire.learn(key, habit)
        return habit

    return learn
