"""What a call on a group is, whoever makes it: which step, and how long the backend waits."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from rankdrill.boundary.callsites import call_site
from rankdrill.boundary.contracts import message_terms_of, terms_of
from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.habits import Habit
from rankdrill.boundary.headers import Headers
from rankdrill.boundary.messages import Messages
from rankdrill.boundary.numbering import Numbering
from rankdrill.boundary.reducers import Buckets, WaitsAtTheEnd
from rankdrill.boundary.repertoire import Repertoire
from rankdrill.boundary.work import NO_TIMEOUT
from rankdrill.ledger import milliseconds
from rankdrill.step import MESSAGES, SEND, Site, Step

__all__ = ["CallingGroup", "habit_of", "patience_ms_of", "patience_of", "step_of"]


class CallingGroup(Protocol):
    """What its calls look at, and change, of a group that ranks call on: see `DrilledGroup`."""

    boundary: Boundary
    inner: Any
    place: int
    members: int
    sequence: Numbering
    messages: Messages
    headers: Headers
    repertoire: Repertoire
    buckets: Buckets
    waits_at_the_end: WaitsAtTheEnd
    introduced: bool
    last_used: int
    used: Numbering
    patience_ms: int
    devices: frozenset[str]

    @property
    def timeout(self) -> float: ...

    def take_back(self, step: Step, args: dict[str, Any]) -> None: ...

    def entrance(self, step: Step) -> Callable[[int], None]: ...


def step_of(group: CallingGroup, op: str, args: dict[str, Any]) -> Step:
    """The step that is the collective `op` of `group`; takes the group's next number."""
    site = call_site(2)
    if op in MESSAGES:
        peer, tag = args.get("peer"), args.get("tag", 0)
        terms = message_terms_of(args.get("tensors"), group.devices)
        told = f"{terms.contract.shown} peer={'any' if peer is None else peer} tag={tag}".lstrip()
        message = group.messages.take(op, peer, tag)
        if peer is not None:
            if header := group.headers.told(op, peer):
                message = replace(message, header=header)
            group.headers.note(op, peer, args.get("tensors"), sent=op == SEND)
        return group.repertoire.habit(op, terms, site).step.like(fingerprint=told, message=message)
    return habit_of(group, op, args, site, depth=2).step.like(sequence=group.sequence.take())


def habit_of(group: CallingGroup, op: str, args: dict[str, Any], site: Site | None, depth: int = 1) -> Habit:
    """The collective `op` of `group` as it is made with these arguments at that line, by the caller at `depth`."""
    terms = terms_of(op, args, group.place, group.members, group.devices)
    if group.buckets.in_use:
        site = group.buckets.site_of(terms.contract, site, depth + 2)
    return group.repertoire.habit(op, terms, site)


def patience_of(group: CallingGroup, args: dict[str, Any]) -> float:
    """Seconds after which the backend gives up this call: its own timeout, else the group's; 0 if unknown."""
    own = args.get("timeout") or getattr(args.get("opts"), "timeout", None)
    if isinstance(own, int | float):  # C++ takes seconds, too
        own = datetime.timedelta(seconds=own)
    return group.timeout if own is None or own <= NO_TIMEOUT else float(own.total_seconds())


def patience_ms_of(group: CallingGroup, opts: Any) -> int:
    """The same in whole milliseconds, of a call that has no timeout but in its options."""
    own = getattr(opts, "timeout", None)
    if own is None or (isinstance(own, datetime.timedelta) and own <= NO_TIMEOUT):
        return group.patience_ms
    seconds = patience_of(group, {"opts": opts})
    return milliseconds(seconds) if seconds else 0
