"""Handles of asynchronous calls that the user was given, and what becomes of them: waited for, or never."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from rankdrill.boundary import modes_seam
from rankdrill.boundary.accesses import AccessWatch, Use
from rankdrill.boundary.callsites import call_site
from rankdrill.boundary.contracts import flatten
from rankdrill.boundary.numbering import numbering
from rankdrill.boundary.prints import WAYS, Print, prints_of
from rankdrill.boundary.regions import Buffers, Extent, Region, buffers_of
from rankdrill.step import Site, Step

__all__ = ["Access", "AnyHandle", "Handle", "Handles", "Tell"]

MOST_WATCHED = 256  # calls under way, the newest: each access is compared with all of them


@dataclass(frozen=True, slots=True)
class Access:
    """What the user does, and where, to memory that a call under way works on: its ``input`` or ``output``."""

    use: Use
    role: str
    site: Site | None


class Handle:
    """One of them. It is `lost` once its object is gone, without that anybody has waited: now nobody can."""

    __slots__ = ("_handles", "_prints", "_work", "buffers", "number", "of_all", "step")

    def __init__(
        self,
        number: int,
        step: Step,
        buffers: Buffers,
        work: Any,
        handles: Handles,
        lose: Callable[[], None] | None,
        of_all: tuple[int, ...] = (),
        prints: tuple[Print, ...] = (),
    ) -> None:
        self.number = number
        self.step = step
        self.buffers = buffers
        self.of_all = of_all
        self._prints = [*prints]
        self._work = weakref.ref(work, partial(_lost, self._prints, lose))  # nothing of the handle: it may go first
        self._handles = handles

    @property
    def lost(self) -> bool:
        return self._work() is None

    def settle(self) -> None:
        """Somebody has waited, has seen it completed, or has taken its future to wait for that; may raise."""
        __tracebackhide__ = True
        prints, self._prints = self._prints, []
        changes = ((change, each.written) for each in prints if (change := each.change) is not None)
        changed = next(changes, None)
        watched = self.number in self._handles.under_way
        self._handles.settle(self)
        if changed is not None and watched:
            use, written = changed
            self._handles.changed(self, WAYS.index(use), written=written)


def _lost(prints: list[Print], lose: Callable[[], None] | None, _: object) -> None:
    """Its work is gone: what that worked on may go, too."""
    prints.clear()
    if lose is not None:
        lose()


class AnyHandle(Protocol):
    """A `Handle`, or what stands for one in C."""

    @property
    def number(self) -> int: ...

    @property
    def step(self) -> Step: ...

    @property
    def buffers(self) -> Buffers: ...

    @property
    def of_all(self) -> tuple[int, ...]: ...

    @property
    def lost(self) -> bool: ...

    def settle(self) -> None: ...


Tell = Callable[[AnyHandle, Access], None]
"""Told of an access to memory that a call under way reads or writes; may raise."""


class Handles:
    """Those of one rank. While one of them is under way its thread's accesses to tensors are watched.

    Safe to use from several threads: work may be waited for in another than the one that issued it. C adds to them,
    too, and takes from them; see native/issued.c.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self.numbers = numbering()
        self.unsettled: dict[int, AnyHandle] = {}
        self.under_way: dict[int, AnyHandle] = {}
        self._due: set[int] = set()
        self.watch = AccessWatch(self)
        self._beside = AccessWatch(self)
        self.modes = (*modes_seam.FUNCTION_MODES, self.watch.inside)  # for C

    def attend(self) -> None:
        """Watch this thread until it leaves: it may use what a call works on that another thread has issued."""
        modes_seam.lay_function_mode(self._beside)

    def leave(self) -> None:
        """This thread does nothing more of the user's."""
        modes_seam.lift_function_mode(self._beside)

    @property
    def upcoming(self) -> int:
        """The number of the next one."""
        return self.numbers.upcoming

    def hold_call(
        self, step: Step, args: dict[str, Any], place: int, work: Any, lose: Callable[[], None] | None
    ) -> Handle:
        """As `hold`, of a call with these arguments on the rank that is `place` of the group."""
        buffers = buffers_of(step.op, args, place)
        return self.hold(step, buffers, work, lose, prints=prints_of(args, buffers))

    def hold(
        self,
        step: Step,
        buffers: Buffers,
        work: Any,
        lose: Callable[[], None] | None = None,
        of_all: tuple[int, ...] = (),
        prints: tuple[Print, ...] = (),
    ) -> Handle:
        """The user is given `work`, the handle of `step`; `lose` is called if that is lost.

        With `of_all` it is for any of these global ranks to wait: a result that some of them have no use for.
        `prints` are those of what it works on.
        """
        handle = Handle(self.numbers.take(), step, buffers, work, self, lose, of_all, prints)
        self.unsettled[handle.number] = handle
        if buffers.inputs or buffers.outputs:
            self.under_way[handle.number] = handle
            if len(self.under_way) > MOST_WATCHED:
                self.trim()
        if self.under_way:
            self.watch.begin()
        return handle

    def trim(self) -> None:
        """Watch the newest only."""
        for number in sorted(self.under_way.copy())[:-MOST_WATCHED]:
            self.under_way.pop(number, None)

    def settle(self, handle: AnyHandle) -> None:
        """Of `handle` nothing more is asked."""
        self.unsettled.pop(handle.number, None)
        self.under_way.pop(handle.number, None)
        if not self.under_way:
            self.watch.end()

    def expect(self, numbers: Container[int] | None = None) -> None:
        """Those with these `numbers`, or all, had to be settled by now, though somebody may still have them."""
        self._due |= {number for number in self.unsettled.copy() if numbers is None or number in numbers}

    def forget(self, numbers: Container[int]) -> None:
        """Of those with these `numbers` nothing is asked: whoever was to wait was kept from it."""
        for handle in self._all():
            if handle.number in numbers:
                self._dismiss(handle)

    def take_unwaited(self) -> list[tuple[Step, tuple[int, ...]]]:
        """What nobody has waited for, and cannot any more or should have; and `of_all` of each. Each is told once."""
        found = [each for each in self._all() if each.number in self._due or each.lost]
        for handle in found:
            self._dismiss(handle)
        self._due.clear()
        return [(handle.step, handle.of_all) for handle in found]

    def _dismiss(self, handle: AnyHandle) -> None:
        """Nobody waits for it, so nobody is to be told of its memory."""
        self.under_way.pop(handle.number, None)
        handle.settle()
        if not self.under_way:
            self.watch.end()

    def rest(self) -> None:
        """Watch nothing until the next handle: the body is over."""
        self.under_way.clear()
        self.watch.end()

    def _all(self) -> list[AnyHandle]:
        return list(self.unsettled.copy().values())

    # ------------------------------------------------------------------------------------ memory

    def enter(self, step: Step, args: dict[str, Any], place: int) -> None:
        """The rank is about to enter another call: may raise where that uses what one under way does."""
        tensors = flatten([args.get("tensors"), args.get("outputs")])
        if not all(tensor.device.type == "cpu" for tensor in tensors):
            return  # what a device is given to do it does in turn
        buffers = buffers_of(step.op, args, place)
        for regions, use in ((buffers.inputs, Use.READ), (buffers.outputs, Use.WRITE)):
            for region in regions:
                self.touched(Extent(region.start, region.end - region.start, ()), use)

    def __bool__(self) -> bool:
        return bool(self.under_way)

    def concerns(self, extent: Extent) -> bool:
        """Whether a call under way reads or writes there."""
        return any(_role(handle.buffers, extent, Use.WRITE) for handle in self.under_way.copy().values())

    def touched(self, extent: Extent, use: Use) -> None:
        """A tensor is accessed; may raise where a call under way works on its memory."""
        __tracebackhide__ = True
        for handle in self.under_way.copy().values():
            role = _role(handle.buffers, extent, use)
            if role:
                self.rest()  # what follows may follow from this
                self._tell(handle, Access(use, role, call_site()))
                return

    def changed(self, handle: AnyHandle, how: int, written: int) -> None:
        """Whoever waits for `handle` finds what that reads, or has `written`, changed in one of `WAYS`; may raise."""
        __tracebackhide__ = True
        use = WAYS[how]
        assert use is not None
        self.rest()
        self._tell(handle, Access(use, "output" if written else "input", call_site()))


def _role(buffers: Buffers, extent: Extent, use: Use) -> str:
    """What such an access must not touch: ``output``, ``input``, or nothing of it."""
    if _meets(buffers.outputs, extent):
        return "output"
    return "input" if use is Use.WRITE and _meets(buffers.inputs, extent) else ""


def _meets(regions: tuple[Region, ...], extent: Extent) -> bool:
    return any(extent.meets(region.start, region.end) and not region.gone for region in regions)
