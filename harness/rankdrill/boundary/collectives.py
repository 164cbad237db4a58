"""Collectives become steps: every process group is wrapped, so DDP, FSDP and functional collectives are seen too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch.distributed as dist

from rankdrill.boundary import torch_seam
from rankdrill.boundary.announced import Announced
from rankdrill.boundary.at_once import at_once
from rankdrill.boundary.beaten import method_of, way_of
from rankdrill.boundary.callsites import call_site
from rankdrill.boundary.contracts import describe, flatten, shown
from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.gaps import MINDING_GAPS, first_out_of_order, first_with_gaps
from rankdrill.boundary.gate import Call
from rankdrill.boundary.group_calls import habit_of, patience_of, step_of
from rankdrill.boundary.handed import handed_to_user, returned_to_user
from rankdrill.boundary.headers import Headers
from rankdrill.boundary.lasting import Lasting
from rankdrill.boundary.made_groups import Made
from rankdrill.boundary.messages import Messages
from rankdrill.boundary.methods import METHODS
from rankdrill.boundary.numbering import Numbering, numbering
from rankdrill.boundary.pipelines import Pipelines
from rankdrill.boundary.reducers import Buckets, WaitsAtTheEnd
from rankdrill.boundary.regions import Buffers
from rankdrill.boundary.repertoire import Repertoire
from rankdrill.boundary.shared_outputs import TAKING_APART, shared_output
from rankdrill.boundary.work import NeverWaited, TrackedWork
from rankdrill.ledger import ON_DEVICE, State, milliseconds
from rankdrill.ledger.members import PARTLY_ON_DEVICE
from rankdrill.step import ANYBODY, DEFAULT_GROUP, MESSAGES, NO_SEQUENCE, RECV, SEND, Kind, Step

__all__ = ["DrilledGroup", "install_collectives"]

_BLOCKS = "monitored_barrier"  # it is over when it returns, and there is no handle that somebody would wait for
_COUNTS = frozenset(
    {"all_to_all_single", "all_gather", "all_gather_into_tensor"}
)  # by which ranks tell each other what they are going to send
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
        self._name = torch_seam.name_of(inner)
        self.label = DEFAULT_GROUP if inner.group_desc == "default_pg" else self._name
        self.sequence = numbering()
        self.repertoire = Repertoire(self.label)
        self.place, self.members = inner.rank(), inner.size()
        self._key = boundary.name_group(self.label, ranks)
        self.messages = Messages(self._key, ranks, self.place, boundary.messages)
        self.pipelines = Pipelines(self._key, ranks, self.place)
        # Of groups made from this one, if it is the default group.
        self.making = boundary.name_group(f"groups of {self.label}", ranks)
        self.groups_made = numbering()
        self.groups_made_alone = 0  # with use_local_synchronization; by members, where this rank is one
        self.made_alone: dict[tuple[int, ...], Numbering] = {}
        self.made: Made | None = None  # by the user
        self.used = numbering()
        self.buckets, self.waits_at_the_end = Buckets(), WaitsAtTheEnd()
        self.lasting = Lasting()
        self.announced, self.headers = Announced(), Headers()
        self.introduced = False
        self.way: object | None = None
        self.timeout = torch_seam.group_timeout(inner)
        self.on_device = torch_seam.goes_on_after_calls(inner)
        self.devices = frozenset() if self.on_device else torch_seam.devices_with_queues(inner)

    def count_anew(self) -> None:
        """Number collectives and messages from 0 again: a run begins, and all that was issued before it is over.

        To the watch they are another group's: what was posted of those that had these numbers is still there, and
        says nothing of this run.
        """
        self.sequence, self.announced, self.headers = numbering(), Announced(), Headers()
        self._key = (self._key + 1) & _MOST_KEY
        self.messages = Messages(self._key, self.global_ranks, self.place, self.boundary.messages)
        self.pipelines = Pipelines(self._key, self.global_ranks, self.place)
        self.repertoire.forget()  # that number stands in what its habits post
        self.way = way_of(self)

    @property
    def timeout(self) -> float:
        """Seconds after which its collectives give up; 0 where that is not known. `patience_ms` is the same."""
        return self._timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._timeout = seconds
        self.patience_ms = milliseconds(seconds) if seconds else 0
        self.way = way_of(self)

    @property
    def last_used(self) -> int:
        """The moment at which it was used last, as `MadeGroups.use` gives them; 0 where it was not."""
        return self.used.upcoming

    @last_used.setter
    def last_used(self, moment: int) -> None:
        self.used.go_to(moment)

    def introduce(self) -> None:
        """Write this group's members into the ledger, once, before its first collective."""
        if not self.introduced and self.boundary.ledger:
            self.introduced = True
            goes_on = ON_DEVICE if self.on_device else PARTLY_ON_DEVICE if self.devices else 0
            self.boundary.on_device = self.boundary.on_device or bool(goes_on)
            self.boundary.ledger.introduce_group(self.label, self.global_ranks, goes_on)
            self.way = way_of(self)

    def give_back(self, step: Step, args: dict[str, Any]) -> None:
        """Have the next call, or message, take the number of `step`, which is not issued."""
        if step.message is not None:
            self.messages.give_back(step.op, args.get("peer"), step.message)
        elif step.sequence != NO_SEQUENCE:
            self.sequence.give_back(step.sequence)

    def take_back(self, step: Step, args: dict[str, Any]) -> None:
        """A call that was refused when it was issued never took place: the next one meets the others' there."""
        self.give_back(step, args)
        if self.boundary.watch is not None:
            self.boundary.watch.retract(self._key, step)

    def enter(self, step: Step) -> None:
        """Tell the watch, if there is one, that this rank is about to do `step`; may raise."""
        __tracebackhide__ = True
        if self.boundary.watch is not None:
            if step.message is not None:
                self.pipelines.begin(step, self.boundary.watch)
            self.boundary.watch.enter(self._key, self.global_ranks, self.place, step)

    def entrance(self, step: Step) -> Callable[[int], None]:
        """What tells the watch, which there is, that this rank is about to do `step`, each time with its number."""
        assert self.boundary.watch is not None
        return self.boundary.watch.entrance(self._key, self.global_ranks, self.place, step)

    # A group written in Python has no backends, in which torch would keep these.
    def getGroupName(self) -> str:  # noqa: N802
        """The wrapped group's name."""
        return self._name

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
        hang_up = self.inner.abort  # groups of torch 2.6 have none
        if self.boundary.open and self.boundary.ledger:
            record = self.boundary.ledger.begin(Step(Kind.COLLECTIVE, "abort", self.label))
            self.boundary.fail(record, ConnectionAbortedError("this rank hung up"))
        self.made = None  # it holds nothing any more
        hang_up()


def install_collectives(boundary: Boundary) -> Callable[[], None]:
    """Wrap every process group made from now on in this process; returns a function that undoes this."""

    def wrap(group: Any, ranks: tuple[int, ...]) -> Any:
        if isinstance(group, DrilledGroup):
            return group
        made = DrilledGroup(group, ranks, boundary)
        boundary.announce_group(made)
        return made

    def note(argument: object) -> None:
        if isinstance(argument, DrilledGroup):
            argument.buckets.in_use = True

    undo_groups, undo_reducers = torch_seam.wrap_new_groups(wrap), torch_seam.stand_around_reducers(note)

    def undo() -> None:
        undo_reducers()
        undo_groups()

    return undo


def _override(
    method: str, op: str, names: tuple[str, ...], beaten: Callable[[DrilledGroup, tuple[Any, ...]], Any] | None
) -> Callable[..., Any]:
    def call(self: DrilledGroup, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if beaten is not None and not kwargs:
            work = beaten(self, args)
            if work is not NotImplemented:
                return work
        boundary = self.boundary
        if not boundary.open:
            return getattr(self.inner, method)(*args, **kwargs)
        self.introduce()
        self.last_used = boundary.made.use()
        self.waits_at_the_end.clear()
        bound: dict[str, Any] = dict(zip(names, args, strict=False))
        bound.update(kwargs, group=self)
        if op in MINDING_GAPS and boundary.watch is not None:
            _refuse_gaps(self, op, bound)
        if op in TAKING_APART and boundary.watch is not None:
            _refuse_shared(self, op, bound)
        tells = (
            op in _COUNTS and boundary.watch is not None and self.announced.note(op, bound, self.members, self.place)
        )
        if boundary.undisturbed and not getattr(bound.get("opts"), "asyncOp", True):
            habit = habit_of(self, op, bound, call_site(2))
            done = at_once(self, habit, bound.get("opts"), method, args, kwargs)
            if tells:
                self.announced.keep()
            return done

        def real(crossing: Call) -> Any:
            __tracebackhide__ = True
            group, given = crossing.args["group"], crossing.args
            if isinstance(group, DrilledGroup):
                if boundary.handles is not None and boundary.handles.under_way:
                    boundary.handles.enter(crossing.step, given, group.place)
                group.enter(crossing.step)
                if op == _BLOCKS:
                    boundary.be_patient(crossing.record, patience_of(group, given))
                group = group.inner
            function = getattr(group, method)
            if given is bound:  # as nearly always: nothing was bent
                return function(*args, **kwargs)
            named = {name: value for name, value in given.items() if name != "group"}
            return function(*[named.pop(name) for name in names[: len(args)]], **named)

        step = step_of(self, op, bound)
        if step.message is not None and step.message.peer == ANYBODY and boundary.may_be_copied:
            _try_other_orders(boundary)
        try:
            record, work = boundary.begin(step, bound, real)
        except BaseException:
            self.take_back(step, bound)
            raise
        if work is None or isinstance(work, TrackedWork):
            boundary.mark(record, State.ENDED)
            return work
        arrived, ends = _once_there(self, step, record, bound.get("tensors")), self.waits_at_the_end
        tracked = TrackedWork(work, boundary, record, patience_of(self, bound), arrived, ends, sends=op == SEND)
        if boundary.handles is not None and getattr(bound.get("opts"), "asyncOp", True) and handed_to_user():
            lose = partial(boundary.fail, record, NeverWaited()) if _delivered_by_handle(op, bound) else None
            tracked.handle = boundary.handles.hold_call(step, bound, self.place, tracked, lose)
        elif boundary.handles is not None and step.message is None and returned_to_user():
            tracked.handle = boundary.handles.hold(step, Buffers(), tracked, of_all=self.global_ranks)
        return self.lasting.for_caller(tracked, method)

    call.__name__ = method
    call.__doc__ = f"`ProcessGroup.{method}` as the step ``collective.{op}``."
    return call


for _method, (_op, _names) in METHODS.items():
    if hasattr(dist.ProcessGroup, _method):
        setattr(DrilledGroup, _method, method_of(_method, _op, _names, partial(_override, _method, _op, _names)))


def _try_other_orders(boundary: Boundary) -> None:
    """Before a receive from anybody. Returns in copies, too, of whose handles nobody is told."""
    boundary.orders.before()
    if boundary.orders.in_copy and boundary.handles is not None:
        boundary.handles.rest()


def _refuse_gaps(group: DrilledGroup, op: str, args: dict[str, Any]) -> None:
    """Tell the watch of a tensor that gloo would misread, before it does; may raise."""
    __tracebackhide__ = True
    tensor = first_with_gaps(op, args)
    if tensor is None:
        tensor = first_out_of_order(op, args, group.place)
    if tensor is None or group.members < 2 or torch_seam.backend_on_cpu(group.inner) != "gloo":
        return
    assert group.boundary.watch is not None
    step = Step(Kind.COLLECTIVE, op, group.label, sequence=group.sequence.upcoming, site=call_site(2))
    with group.boundary.closed():
        group.boundary.watch.misread(step, shown(describe(tensor)), tuple(tensor.stride()))


def _refuse_shared(group: DrilledGroup, op: str, args: dict[str, Any]) -> None:
    """Tell the watch of one tensor that is given for what several ranks send; may raise."""
    __tracebackhide__ = True
    found = shared_output(args)
    if found is None or group.members < 2:
        return
    assert group.boundary.watch is not None
    tensor, parts = found
    step = Step(Kind.COLLECTIVE, op, group.label, sequence=group.sequence.upcoming, site=call_site(2))
    with group.boundary.closed():
        group.boundary.watch.overwritten(step, shown(describe(tensor)), parts)


def _delivered_by_handle(op: str, args: dict[str, Any]) -> bool:
    """Whether it is a message that gloo delivers only while somebody has its handle."""
    return op in MESSAGES and all(tensor.device.type == "cpu" for tensor in flatten(args.get("tensors")))


def _once_there(group: DrilledGroup, step: Step, record: int, into: Any) -> Callable[[int], None] | None:
    """What is to be done when the message of `step` is there and its sender known; None of steps that receive none."""
    message, boundary = step.message, group.boundary
    if message is None or step.op != RECV or (message.peer != ANYBODY and not boundary.orders.under_way):
        return None

    def arrived(source: int) -> None:
        __tracebackhide__ = True
        known = message
        if message.peer == ANYBODY:
            known = group.messages.arrived(source, message.tag)
            if boundary.ledger:
                boundary.ledger.tell_message(record, known)
            with boundary.closed():
                group.enter(step.like(message=known))
                boundary.from_anybody.add(step, known.peer, into)
        with boundary.closed():
            boundary.orders.came(step, known, source, into)

    return arrived
