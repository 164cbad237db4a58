"""Collectives become steps: every process group is wrapped, so DDP, FSDP and functional collectives are seen too."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch.distributed as dist

from rankdrill.boundary import torch_seam
from rankdrill.boundary.callsites import call_site
from rankdrill.boundary.contracts import flatten, message_terms_of, terms_of
from rankdrill.boundary.crossing import Boundary, Call
from rankdrill.boundary.handed import handed_to_user
from rankdrill.boundary.handles import Handle
from rankdrill.boundary.lasting import Lasting
from rankdrill.boundary.made_groups import Made
from rankdrill.boundary.messages import Messages
from rankdrill.boundary.methods import METHODS
from rankdrill.boundary.numbering import Numbering
from rankdrill.boundary.reducers import Buckets, WaitsAtTheEnd
from rankdrill.boundary.regions import buffers_of
from rankdrill.ledger import GROUP_OP, State, spell_members
from rankdrill.step import ANYBODY, DEFAULT_GROUP, NO_SEQUENCE, RECV, SEND, Kind, Step

__all__ = ["DrilledGroup", "TrackedWork", "flatten", "install_collectives", "patience_of", "step_of"]

_POINT_TO_POINT = frozenset({SEND, RECV})
_NO_TIMEOUT = datetime.timedelta(0)
_MOST_KEY = (1 << 64) - 1


class DrilledGroup(dist.ProcessGroup):
    """A process group whose every call is a step. It carries the backends of the group it wraps.

    Torch reaches the methods below from Python and, by virtual dispatch, from C++ (DDP's reducer, functional
    collectives); everything not listed goes to the real backends directly.
    """

    def __init__(self, inner: dist.ProcessGroup, ranks: tuple[int, ...], boundary: Boundary) -> None:
        # The constructor that takes a store makes an object whose overrides C++ does not see.
        super().__init__(inner.rank(), inner.size())  # type: ignore[call-arg]
        torch_seam.adopt_backends(self, inner)
        self.inner = inner
        self.global_ranks = ranks
        self.boundary = boundary
        self.label = DEFAULT_GROUP if inner.group_desc == "default_pg" else str(inner.group_name)
        self.sequence = Numbering()
        self.timeout = torch_seam.group_timeout(inner)
        self.place, self.members = inner.rank(), inner.size()
        self.key = boundary.name_group(self.label, ranks)
        self._collectives_key = self.key
        self.messages = Messages(self.key, ranks, self.place, boundary.messages)
        # Of groups made from this one, if it is the default group.
        self.making = boundary.name_group(f"groups of {self.label}", ranks)
        self.groups_made = Numbering()
        self.groups_made_alone = 0  # with use_local_synchronization
        self.made: Made | None = None  # by the user
        self.last_used = 0
        self.buckets, self.waits_at_the_end = Buckets(), WaitsAtTheEnd()
        self.lasting = Lasting()
        self._introduced = False

    def count_anew(self) -> None:
        """Number collectives from 0 again: a run begins, in which all members have issued equally many so far.

        To the watch they are another group's: what was posted of those that had these numbers is still there.
        """
        self.sequence = Numbering()
        self._collectives_key = (self._collectives_key + 1) & _MOST_KEY

    def introduce(self) -> None:
        """Write this group's members into the ledger, once, before its first collective."""
        if not self._introduced and self.boundary.ledger:
            self._introduced = True
            for ranks in spell_members(self.global_ranks):
                record = self.boundary.ledger.begin(Step(Kind.COLLECTIVE, GROUP_OP, self.label, ranks))
                self.boundary.mark(record, State.ENDED)

    def give_back(self, step: Step, args: dict[str, Any]) -> None:
        """Have the next call, or message, take the number of `step`, which is not issued."""
        if step.message is not None:
            self.messages.give_back(step.op, args.get("peer"), step.message)
        elif step.sequence != NO_SEQUENCE:
            self.sequence.give_back(step.sequence)

    def _take_back(self, step: Step, args: dict[str, Any]) -> None:
        """A call that was refused when it was issued never took place: the next one meets the others' there."""
        self.give_back(step, args)
        if self.boundary.watch is not None:
            self.boundary.watch.retract(self._key_of(step), step)

    def enter(self, step: Step) -> None:
        """Tell the watch, if there is one, that this rank is about to do `step`; may raise."""
        if self.boundary.watch is not None:
            self.boundary.watch.enter(self._key_of(step), self.global_ranks, self.place, step)

    def _key_of(self, step: Step) -> int:
        return self.key if step.message is not None else self._collectives_key

    # A group written in Python has no backends, in which torch would keep these.
    def getGroupName(self) -> str:  # noqa: N802
        """The wrapped group's name."""
        return str(self.inner.group_name)

    def getGroupDesc(self) -> str:  # noqa: N802
        """The wrapped group's description."""
        return str(self.inner.group_desc)

    def get_group_store(self) -> Any:
        """The wrapped group's store, which the wrapper's own C++ part does not hold."""
        return self.inner.get_group_store()

    def getBackendName(self) -> str:  # noqa: N802 (torch's name)
        """What C++ asks for when it reports an error."""
        inner: Any = self.inner
        return str(inner.name() if type(inner) is dist.ProcessGroup else inner.getBackendName())

    def abort(self) -> None:
        """Close the connections. No step that could be struck, but on record: they are not for the next test."""
        if self.boundary.open and self.boundary.ledger:
            record = self.boundary.ledger.begin(Step(Kind.COLLECTIVE, "abort", self.label))
            self.boundary.fail(record, ConnectionAbortedError("this rank hung up"))
        self.made = None  # it holds nothing any more
        self.inner.abort()


class NeverWaited(Exception):  # noqa: N818 (it stands in the ledger, and is never raised)
    """The handle of a message was dropped before anybody had waited."""


class TrackedWork(dist.Work):
    """The handle of a collective under way; notes in the ledger when somebody waits and when it is over."""

    def __init__(
        self,
        inner: Any,
        boundary: Boundary,
        record: int,
        patience: float,
        arrived: Callable[[int], None] | None = None,
        at_the_end: WaitsAtTheEnd | None = None,
    ) -> None:
        super().__init__()
        self.inner = inner
        self._at_the_end = at_the_end  # to be told when its future is asked for
        self._arrived = arrived  # to be told the sender of what was received, once it is known
        self._boundary = boundary
        self._record = record
        self._patience = patience
        self._over = False
        self.handle: Handle | None = None  # where the user holds it
        boundary.mark(record, State.ISSUED)

    def wait(self, timeout: datetime.timedelta = _NO_TIMEOUT) -> bool:
        """Wait for the collective, `timeout` 0 meaning the group's own."""
        __tracebackhide__ = True  # so that pytest ends its traceback in the code under test
        self._settle()
        if not self._over:
            self._boundary.wait(self._record, self._patience_within(timeout))
        try:
            done = self.inner.wait(timeout) if timeout else self.inner.wait()
            self._tell_source()
        except BaseException as error:
            self._boundary.fail(self._record, error)
            raise
        self._boundary.mark(self._record, State.ENDED)
        return bool(done)

    def _patience_within(self, timeout: datetime.timedelta) -> float:
        asked = timeout.total_seconds() if timeout else 0.0
        return min(self._patience or asked, asked or self._patience)

    def is_completed(self) -> bool:
        """Whether it is over, without waiting."""
        done = bool(self.inner.is_completed())
        if done and not self._over:
            self._over = True
            self._tell_source()
            self._boundary.mark(self._record, State.ENDED)
            self._settle()
        return done

    def _tell_source(self) -> None:
        arrived, self._arrived = self._arrived, None
        if arrived is None:
            return
        try:
            source = self._source_rank()
        except RuntimeError:  # a fault put another handle in its place, which has none
            return
        arrived(source)

    def begin_waiting(self) -> None:
        """Somebody waits for it from here on, without asking here."""
        if not self.is_completed():
            self._boundary.wait(self._record, self._patience)

    def stop_waiting(self) -> None:
        """Nobody does any more."""
        if not self.is_completed():
            self._boundary.mark(self._record, State.ISSUED)

    def is_success(self) -> bool:
        return bool(self.inner.is_success())

    def exception(self) -> Any:
        return self.inner.exception()

    def result(self) -> Any:
        found = self.inner.result()  # refused before it is completed
        self._settle()
        return found

    def get_future(self) -> Any:
        future = self.inner.get_future()
        self._settle()
        if self._at_the_end is not None and self._boundary.ledger:
            self._at_the_end.expect(self)
        return future

    def getFuture(self) -> Any:  # noqa: N802 (torch's name)
        return self.get_future()

    def synchronize(self) -> None:
        self._settle()
        self.inner.synchronize()

    def source_rank(self) -> int:
        return int(self.inner.source_rank())

    def _source_rank(self) -> int:
        return int(self.inner._source_rank())

    def _settle(self) -> None:
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.settle()


def install_collectives(boundary: Boundary) -> Callable[[], None]:
    """Wrap every process group made from now on in this process; returns a function that undoes this."""

    def wrap(group: Any, ranks: tuple[int, ...]) -> Any:
        return group if isinstance(group, DrilledGroup) else DrilledGroup(group, ranks, boundary)

    def note(argument: object) -> None:
        if isinstance(argument, DrilledGroup):
            argument.buckets.in_use = True

    undo_groups, undo_reducers = torch_seam.wrap_new_groups(wrap), torch_seam.stand_around_reducers(note)

    def undo() -> None:
        undo_reducers()
        undo_groups()

    return undo


def _override(method: str, op: str, names: tuple[str, ...]) -> Callable[..., Any]:
    def call(self: DrilledGroup, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        boundary = self.boundary
        if not boundary.open:
            return getattr(self.inner, method)(*args, **kwargs)
        bound: dict[str, Any] = {"group": self, **dict(zip(names, args, strict=False)), **kwargs}
        positional = names[: len(args)]

        def real(crossing: Call) -> Any:
            __tracebackhide__ = True
            group = crossing.args["group"]
            if isinstance(group, DrilledGroup):
                if boundary.handles:
                    boundary.handles.enter(crossing.step, crossing.args, group.place)
                group.enter(crossing.step)
            function = getattr(getattr(group, "inner", group), method)
            if crossing.args is bound:  # as nearly always: nothing was bent
                return function(*args, **kwargs)
            given = {name: value for name, value in crossing.args.items() if name != "group"}
            ordered = [given.pop(name) for name in positional]
            return function(*ordered, **given)

        self.introduce()
        self.last_used = boundary.made.use()
        self.waits_at_the_end.clear()
        step = step_of(self, op, bound)
        try:
            record, work = boundary.begin(step, bound, real)
        except BaseException:
            self._take_back(step, bound)
            raise
        if work is None or isinstance(work, TrackedWork):
            boundary.mark(record, State.ENDED)
            return work
        arrived = None if step.message is None else _from_anybody(self, step, record, bound.get("tensors"))
        tracked = TrackedWork(work, boundary, record, patience_of(self, bound), arrived, self.waits_at_the_end)
        # Of most calls their options say that it is torch itself who waits, before it returns.
        if boundary.handles is not None and getattr(bound.get("opts"), "asyncOp", True) and handed_to_user():
            lose = partial(boundary.fail, record, NeverWaited()) if _delivered_by_handle(op, bound) else None
            tracked.handle = boundary.handles.hold(step, buffers_of(op, bound, self.place), tracked, lose)
        return self.lasting.for_caller(tracked, method)

    call.__name__ = method
    call.__doc__ = f"`ProcessGroup.{method}` as the step ``collective.{op}``."
    return call


for _method, (_op, _names) in METHODS.items():
    if hasattr(dist.ProcessGroup, _method):
        setattr(DrilledGroup, _method, _override(_method, _op, _names))


def _delivered_by_handle(op: str, args: dict[str, Any]) -> bool:
    """Whether it is a message that gloo delivers only while somebody has its handle."""
    return op in _POINT_TO_POINT and all(tensor.device.type == "cpu" for tensor in flatten(args.get("tensors")))


def _from_anybody(group: DrilledGroup, step: Step, record: int, into: Any) -> Callable[[int], None] | None:
    """What is to be done when the sender of a message that anybody might have sent is known; None of other steps."""
    message = step.message
    if message is None or message.peer != ANYBODY:
        return None

    def arrived(source: int) -> None:
        __tracebackhide__ = True
        known = group.messages.arrived(source, message.tag)
        if group.boundary.ledger:
            group.boundary.ledger.tell_message(record, known)
        with group.boundary.closed():
            group.enter(replace(step, message=known))
            group.boundary.from_anybody.add(step, known.peer, into)

    return arrived


def patience_of(group: DrilledGroup, args: dict[str, Any]) -> float:
    """Seconds after which the backend gives up this call: its own timeout, else the group's; 0 if unknown."""
    own = args.get("timeout") or getattr(args.get("opts"), "timeout", None)
    return group.timeout if own is None or own <= _NO_TIMEOUT else float(own.total_seconds())


def step_of(group: DrilledGroup, op: str, args: dict[str, Any]) -> Step:
    """The step that is the collective `op` of `group`; takes the group's next number."""
    site = call_site(2)
    if op in _POINT_TO_POINT:
        peer, tag = args.get("peer"), args.get("tag", 0)
        terms = message_terms_of(args.get("tensors"))
        contract, nbytes = terms.contract, terms.nbytes
        fingerprint = f"{contract.shown} peer={'any' if peer is None else peer} tag={tag}".lstrip()
        message = group.messages.take(op, peer, tag)
        return Step(
            Kind.COLLECTIVE,
            op,
            group.label,
            fingerprint,
            nbytes,
            site=site,
            digest=contract.digest,
            contract=contract,
            message=message,
        )
    terms = terms_of(op, args, group.place, group.members)
    contract = terms.contract
    site = group.buckets.site_of(contract, site, depth=3)
    sequence = group.sequence.take()
    return Step(
        Kind.COLLECTIVE,
        op,
        group.label,
        terms.fingerprint,
        terms.nbytes,
        sequence,
        site,
        contract.digest,
        contract,
    )
