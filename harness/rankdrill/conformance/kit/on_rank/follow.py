"""The rank's side of a question: make the calls that the script says, and tell what came and what changed."""

from __future__ import annotations

import gc
import os
import pickle
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from rankdrill.boundary.collectives import DrilledGroup
from rankdrill.boundary.torch_seam import group_timeout, set_timeout
from rankdrill.conformance.adapter import UNBOUNDED, Adapter, Setting
from rankdrill.conformance.exact import difference
from rankdrill.conformance.gives import NOT_LOOKED_AT
from rankdrill.conformance.kit.complaints.guesses import Asked, Guess, likeness, with_best
from rankdrill.conformance.kit.on_rank.placed import placed
from rankdrill.conformance.kit.on_rank.regrouped import regrouped
from rankdrill.conformance.kit.on_rank.scramble import scramble
from rankdrill.conformance.kit.on_rank.script import Call, Heard, Script, Told
from rankdrill.conformance.kit.on_rank.surroundings import Surroundings
from rankdrill.conformance.kit.samples.hostile import TOO_LARGE, contributed, spoiled_payload
from rankdrill.diagnosis import name_ranks
from rankdrill.errors import UsageError
from rankdrill.worlds.context import RankContext

__all__ = ["follow", "import_all"]

_MEETING_S = 3.0
_SPARE = 256  # bytes of room above the largest payload, for what a gather writes beside it


def import_all(adapter: Adapter) -> None:
    """Nothing but what it takes to have the adapter here: its modules are imported then."""


def follow(context: RankContext, script: Script) -> Told:
    """Make the calls; what is raised is heard, not raised. Then what changed, in words."""
    calling = _Calling(context, script, _groups(script))
    with placed(script.work, script.scratch), _patient(calling.groups, script.patience):
        surroundings = calling.warmed_up() if script.watched else None
        heard = [calling.make(number, call) for number, call in enumerate(script.calls) if calling.takes_part_in(call)]
        with context.boundary.closed():
            gc.collect()
            left = surroundings.changes() if surroundings is not None else ()
            apart = regrouped(_MEETING_S) if script.regroup else ()
            return Told(tuple(heard), tuple(calling.changed()), (*calling.sent_changed, *left, *apart))


def _groups(script: Script) -> dict[tuple[int, ...] | None, Any]:
    groups: dict[tuple[int, ...] | None, Any] = {None: dist.group.WORLD}
    for members in dict.fromkeys(call.members for call in script.calls):
        if members is not None:
            groups[members] = dist.new_group(list(members))
    if script.regroup:
        others = set(range(dist.get_world_size())).difference(*filter(None, groups))
        groups[tuple(sorted(others))] = dist.new_group(sorted(others))
    return groups


@contextmanager
def _patient(groups: dict[tuple[int, ...] | None, Any], seconds: float | None) -> Iterator[None]:
    """Have the groups give up after `seconds`, if any are given."""
    before = group_timeout(groups[None])
    if seconds is not None:
        _have_give_up(groups[None], seconds)
    yield
    if seconds is not None:
        _have_give_up(groups[None], before)


def _have_give_up(group: Any, seconds: float) -> None:
    changed = set_timeout(group, timedelta(seconds=seconds))
    if changed and isinstance(group, DrilledGroup):
        group.timeout = seconds


@dataclass
class _Calling:
    """The calls of a script on this rank. `held` is what came of them: number, members, call and result."""

    context: RankContext
    script: Script
    groups: dict[tuple[int, ...] | None, Any]
    held: list[tuple[int, Call, Any]] = field(default_factory=list)
    sent_changed: list[str] = field(default_factory=list)
    alone: bool = False

    def takes_part_in(self, call: Call) -> bool:
        return call.members is None or self.context.index in call.members

    def warmed_up(self) -> Surroundings:
        """What there is to be changed, looked at when a first call has made what it keeps for good."""
        with self.context.boundary.closed():
            surroundings = Surroundings.now(self._store(None), self.groups[None])
        self.make(-1, replace(self.script.calls[0], members=None, spoils=None, turn=len(self.script.calls)))
        with self.context.boundary.closed():
            surroundings.settle()
        self.held.clear()
        return surroundings

    def make(self, number: int, call: Call) -> Heard:
        closed = self.context.boundary.closed
        with closed():
            if self.script.meet and call.members is None:
                self._meet(f"before {number}", self.context.world_size)
            time.sleep(dict(call.late).get(self.context.index, 0.0))
            setting, sent = self._prepared(call)
            spoils = call.spoils == setting.rank
            payload = self._spoiled(call) if spoils else sent
            payload = contributed(self.script.adapter, payload, call.spoiled if spoils else "")
        try:
            got = self.script.adapter.call(payload, setting)
        except BaseException as error:  # whatever it is, it is what is asked about
            return Heard(number, error=_told(error), blames=self.script.adapter.blames(error))
        with closed():
            wrong = self._differs(call, got)
            if not spoils:
                self._look_at_sent(number, call, sent)
            if wrong:
                return Heard(number, wrong, like=self._like(number, call, got))
            self.held.append((number, call, got))
            shared = self._shared(call, sent, got) if call.scrambles else ""
            return Heard(number, shared=shared, idle=self._receives_nothing(call))

    def changed(self) -> Iterator[str]:
        """What calls have received is looked at again, after all others."""
        for number, call, got in self.held:
            if not call.scrambles and (wrong := self._differs(call, got)):
                told = with_best(wrong, [self._like(number, call, got)])
                yield f"what call {number + 1} had received was right then and is not after the last: {told}"

    def _prepared(self, call: Call) -> tuple[Setting, Any]:
        """What this rank is told, and what it contributes."""
        script, members = self.script, self._members(call)
        os.makedirs(script.directory, exist_ok=True)
        own, room = members.index(self.context.index), self._room(call)
        group, size, store = self.groups[call.members], len(members), self._store(call.members)
        setting = Setting(own, size, script.directory, room, script.timeout, group, members, call.turn, store)
        return setting, self._payloads(call)[own]

    def _room(self, call: Call) -> int:
        room = self.script.adapter.room
        if not call.fits or room != UNBOUNDED:
            return room
        return max(len(pickle.dumps(payload)) for payload in self._payloads(call)) + _SPARE

    def _members(self, call: Call) -> tuple[int, ...]:
        return call.members or tuple(range(self.context.world_size))

    def _store(self, members: tuple[int, ...] | None) -> Store:
        return PrefixStore(f"{self.script.directory} {members}", self.context.store)

    def _payloads(self, call: Call) -> list[Any]:
        size = len(self._members(call))
        return [self._dressed(call.sample.make(giver, size, call.turn), giver, call) for giver in range(size)]

    def _dressed(self, payload: Any, giver: int, call: Call) -> Any:
        with self._of_adapter(call):
            return self.script.adapter.dressed(payload, giver, len(self._members(call)), call.turn)

    @contextmanager
    def _of_adapter(self, call: Call) -> Iterator[None]:
        """Whatever the adapter raises here is no answer of its gather."""
        try:
            yield
        except Exception as error:
            name = self.script.adapter.name
            raise UsageError(
                f"the adapter {name!r}, and not its gather, failed with {call.sample.name}: {_told(error)}; "
                "see its dress, gives and same"
            ) from error

    def _spoiled(self, call: Call) -> Any:
        payload = spoiled_payload(self.script.adapter, call.spoiled, self._room(call))
        try:
            return self._dressed(payload, call.spoils or 0, call)
        except UsageError:  # it looks into payloads, and this one cannot be looked into
            return payload

    def _differs(self, call: Call, got: Any) -> str:
        own, payloads = self._members(call).index(self.context.index), self._payloads(call)
        if call.spoils is not None:
            if call.spoiled != TOO_LARGE:
                return ""  # there is nothing that would be right
            payloads[call.spoils] = self._spoiled(call)
        adapter = self.script.adapter
        with self._of_adapter(call):
            return adapter.differs(got, adapter.receives(own, payloads), ordered=call.sample.ordered) or ""

    def _receives_nothing(self, call: Call) -> bool:
        own = self._members(call).index(self.context.index)
        wanted = self.script.adapter.receives(own, self._payloads(call)) if call.spoils is None else ()
        return wanted is None or wanted is NOT_LOOKED_AT or (type(wanted) is list and not wanted)

    def _like(self, number: int, call: Call, got: Any) -> tuple[Guess, ...]:
        if call.spoils is not None:
            return ()  # there is nothing that would be right
        calls = [(at, other) for at, other in enumerate(self.script.calls) if at != number]
        others = {at: self._payloads(other) for at, other in calls if other.members == call.members}
        elsewhere = [
            (name_ranks(self._members(other)), self._payloads(other))
            for at, other in calls
            if abs(at - number) == 1 and other.members != call.members
        ]
        own = self._members(call).index(self.context.index)
        return likeness(got, Asked(self.script.adapter, own, self._payloads(call), number, others, elsewhere))

    def _look_at_sent(self, number: int, call: Call, sent: Any) -> None:
        own = self._members(call).index(self.context.index)
        if self.script.watched and (now := difference(sent, self._payloads(call)[own], "the payload")):
            which = f"call {number + 1}" if number >= 0 else "a call before the first"
            self.sent_changed.append(f"{which} has changed what was sent: {now}")

    def _shared(self, call: Call, sent: Any, got: Any) -> str:
        """Have every rank in turn change all it has, and see what changes with it."""
        own, size = self._members(call).index(self.context.index), len(self._members(call))
        scramble(sent)
        wrong = self._differs(call, got)
        told = f"what was received changes with what was sent: {wrong}" if wrong else ""
        for turn in range(size):
            if turn == own:
                scramble(got)
            self._meet(f"{call.turn} {turn}", size)
            if turn < own and not told and (wrong := self._differs(call, got)):
                told = f"what was received changes with what rank {turn} received: {wrong}"
        return told

    def _meet(self, what: str, size: int) -> None:
        """Wait for the others; once somebody has not come, for nobody any more."""
        if self.alone:
            return
        met, store = f"{what} met", self._store(None)
        if store.add(f"{what} here", 1) == size:
            store.set(met, "")
        try:
            store.wait([met], timedelta(seconds=_MEETING_S))
        except RuntimeError:  # of a store that has waited long enough
            self.alone = True


def _told(error: BaseException) -> str:
    """Type and message; the line where it was raised, if it has none."""
    if str(error) or error.__traceback__ is None:
        return f"{type(error).__name__}: {error}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
