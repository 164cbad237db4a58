"""Arming: a rank's faults become interceptors of its boundary."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from rankdrill.faults.check import find_strike
from rankdrill.faults.fault import Fault
from rankdrill.faults.plan import Plan

if TYPE_CHECKING:
    from rankdrill.boundary import Boundary, Call, Interceptor, Proceed

__all__ = ["Armed", "arm"]


class Armed:
    """One fault, armed on one rank: counts the steps it is meant for and strikes the one that is due."""

    def __init__(self, index: int, fault: Fault, boundary: Boundary) -> None:
        self.index = index
        self.fault = fault
        self.seen = 0
        self._boundary = boundary
        self._strike = find_strike(fault.what.name)(fault.where.when, fault.what.args, boundary)
        self._counting = threading.Lock()

    def __call__(self, call: Call, proceed: Proceed) -> Any:
        __tracebackhide__ = True
        if not self._due(call):
            return self._strike.linger(call, proceed)
        # On record first: the strike may end the process.
        self._boundary.struck(call, self.index)
        if self._strike.bends:
            self._boundary.bend()
        return self._strike.strike(call, proceed)

    def _due(self, call: Call) -> bool:
        step, where = call.step, self.fault.where
        if not self._strike.meant_for(step.kind, step.op, where.when):
            return False
        if not where.matches(step, str(call.args.get("dst", ""))):
            return False
        if not self._strike.fits(call):
            return False
        with self._counting:
            self.seen += 1
            return where.nth is None or self.seen == where.nth


def arm(plan: Plan, rank: int, boundary: Boundary) -> list[Interceptor]:
    """What `rank` passes to `boundary.recording(...)`: its faults in the plan's order, the first outermost.

    Arm anew for every run: occurrences count from here.
    """
    return [Armed(index, fault, boundary) for index, fault in plan.for_rank(rank)]
