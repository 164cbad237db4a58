"""The beaten path: calls of a well known shape with nothing in their way, as nearly all are.

All that a watched call costs is what is done here. So each is found by its key, and made at once; and all of that is
done in C where it was built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import torch
import torch.distributed as dist

from rankdrill.boundary import modes_seam, torch_seam
from rankdrill.boundary.at_once import at_once, failed
from rankdrill.boundary.callsites import call_site
from rankdrill.boundary.contracts import REDUCING, ROOTED, terms_of
from rankdrill.boundary.gaps import MINDING_GAPS
from rankdrill.boundary.group_calls import CallingGroup, patience_ms_of
from rankdrill.boundary.habits import Habit, Key, plain_keys_of, well_known
from rankdrill.boundary.handed import handed_to_user, returned_to_user
from rankdrill.boundary.issued import BeatenHandle, BeatenWork
from rankdrill.boundary.options_seam import places_of
from rankdrill.boundary.reducers import BUCKETED, named
from rankdrill.boundary.regions import IN_PLACE
from rankdrill.boundary.strides import MINDING_ORDER
from rankdrill.boundary.tensor_seam import tensor_places
from rankdrill.boundary.work import NO_TIMEOUT
from rankdrill.native import hot
from rankdrill.step import Site

__all__ = ["method_of", "plain_path", "way_of"]

Method: TypeAlias = Callable[..., Any]
Path: TypeAlias = "Callable[[CallingGroup, tuple[Any, ...]], Any]"
"""Makes a call of a group with these arguments; `NotImplemented` where it is not one for the beaten path."""
Learn: TypeAlias = "Callable[[CallingGroup, tuple[Any, ...], Site | None, Key], Habit | None]"
_AT_ONCE = -1  # torch waits for it itself


def method_of(method: str, op: str, names: tuple[str, ...], make: Callable[[Path | None], Method]) -> Method:
    """What is `method` of groups: what `make` makes, which tries the path first that it is given, if there is one.

    In C it is the other way round: the path is the method, and has all calls that are not for it made by the other.
    """
    if not well_known(op, names):
        return make(None)
    learn = _learning(op, names)
    if hot is None:
        return make(plain_path(method, op, names, learn))
    minds_strides = op in MINDING_GAPS or op in MINDING_ORDER
    of_memory = minds_strides, op in IN_PLACE, op == "broadcast"
    kinds = torch.Tensor, dist.ReduceOp, NO_TIMEOUT, places_of(op), tensor_places()
    asked = op, *kinds, op in REDUCING, op in ROOTED, *of_memory, op in BUCKETED
    asks = call_site, learn, failed, patience_ms_of, _meeting(names)
    later = BeatenWork, BeatenHandle, modes_seam.plainly, torch_seam.torch_waits_by_tensor, torch_seam.ENGINE
    return cast(Method, hot.Beaten(method, make(None), len(names), asked, asks, later))


def way_of(group: CallingGroup) -> object | None:
    """What the path in C looks at each time, gathered in one object; to be made anew when any of it is another one."""
    if hot is None or not group.introduced or group.devices:
        return None
    boundary, waiting = group.boundary, group.waits_at_the_end.waiting
    if not isinstance(boundary.inside, hot.Inside):  # the process had no more of them
        return None
    asked = boundary, boundary.made.moments, group.used, group.buckets, waiting, group.repertoire.by_key
    return cast(object, hot.Way(*asked, group.inner, group.sequence, group.patience_ms, group.place))


def plain_path(method: str, op: str, names: tuple[str, ...], learn: Learn) -> Path:
    """It in Python."""
    given, key_of = len(names), plain_keys_of(op)

    def take(group: CallingGroup, args: tuple[Any, ...]) -> Any:
        __tracebackhide__ = True
        boundary = group.boundary
        if (
            len(args) != given
            or not group.introduced
            or group.devices  # of which the key does not tell
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
            assert habit is not None
        group.last_used = boundary.made.use()
        return at_once(group, habit, args[-1], method, args)

    return take


def _learning(op: str, names: tuple[str, ...]) -> Learn:
    def learn(
        group: CallingGroup,
        args: tuple[Any, ...],
        site: Site | None,
        key: Key,
        hand: int = _AT_ONCE,
        in_bucket: bool = False,
    ) -> Habit | None:
        if hand != _AT_ONCE and (not torch_seam.keeps_work() or (not in_bucket and hand != _hand())):
            group.repertoire.learn(key, None)
            return None
        terms = terms_of(op, dict(zip(names, args, strict=True)), group.place, group.members)
        if in_bucket and site is not None:
            site = named(site, group.buckets.next_of(args[0]))
        habit = group.repertoire.habit(op, terms, site)
        group.repertoire.learn(key, habit)
        return habit

    return learn


def _hand() -> int:
    """Who is to wait for the call being issued, as in native/hot.h."""
    return 1 if handed_to_user() else 2 if returned_to_user() else 0


def _meeting(names: tuple[str, ...]) -> Callable[[CallingGroup, Habit, tuple[Any, ...]], None]:
    """What is asked where a call may use memory that one under way does; may raise."""

    def meet(group: CallingGroup, habit: Habit, args: tuple[Any, ...]) -> None:
        __tracebackhide__ = True
        handles = group.boundary.handles
        if handles is not None:
            handles.enter(habit.step, dict(zip(names, args, strict=True)), group.place)

    return meet
