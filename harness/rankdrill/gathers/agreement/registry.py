"""Which channel a call talks over: one for each group and choice of its ranks, kept for as long as the group is."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from rankdrill.errors import UsageError
from rankdrill.gathers.agreement.channel import Channel

__all__ = ["channel_between", "channel_of", "is_member"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called

# By group object. Per process, because a connection is; it is only ever found through the group it belongs to.
_channels: weakref.WeakKeyDictionary[Any, dict[tuple[int, ...], Channel]] = weakref.WeakKeyDictionary()


def channel_of(group: Any = None) -> Channel:
    """The channel between all ranks of `group` (by default of the default group).

    Without an initialised default group: a channel of one rank. Raises UsageError where this rank is not a member.
    """
    if not dist.is_initialized():
        return Channel(None, (0,), (0,))
    group = dist.group.WORLD if group is None else group
    if not is_member(group):
        raise UsageError("this rank is not a member of the group; call the gather on its members only")
    return _kept(group, tuple(dist.get_process_group_ranks(group)))


def channel_between(ranks: Sequence[int], group: Any = None) -> Channel | None:
    """The channel between `ranks` (global) of `group`; None where this rank is not one of them.

    Raises UsageError unless `ranks` are distinct members of the group, as far as a rank outside it can know.
    """
    if dist.is_initialized() and not is_member(group):
        return None  # torch tells such a rank the members of another group: of the newest that it is not in
    if dist.is_initialized() and group is None:
        group = dist.group.WORLD  # torch 2.6 knows no ranks of None
    everyone = (0,) if not dist.is_initialized() else tuple(dist.get_process_group_ranks(group))
    wanted = set(ranks)
    if not wanted or len(wanted) != len(ranks) or not wanted <= set(everyone):
        raise UsageError(f"ranks={list(ranks)}: give distinct global ranks of the group, which has {list(everyone)}")
    if not dist.is_initialized():
        return channel_of()
    if dist.get_rank() not in wanted:
        return None
    return _kept(group, tuple(rank for rank in everyone if rank in wanted))


def _kept(group: Any, members: tuple[int, ...]) -> Channel:
    channels = _channels.setdefault(group, {})
    if members not in channels:
        everyone = dist.get_process_group_ranks(group)
        # Of two threads that come here at once, both get the channel of the first.
        channels.setdefault(members, Channel(group, members, [everyone.index(rank) for rank in members]))
    return channels[members]


def is_member(group: Any) -> bool:
    """Whether this rank belongs to `group`."""
    return group is None or (group is not dist.GroupMember.NON_GROUP_MEMBER and bool(dist.get_rank(group) >= 0))
