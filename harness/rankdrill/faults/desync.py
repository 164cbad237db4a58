"""Strikes at the order of collectives: one left out, one too many, two the wrong way round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankdrill.faults.steps import COLLECTIVE_OPS
from rankdrill.faults.strike import Strike, at
from rankdrill.step import Kind

if TYPE_CHECKING:
    from rankdrill.boundary import Call, Proceed

__all__ = ["STRIKES"]
__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test

# Of a store: the others give something that nobody could make up.
_WITHOUT_RESULT = frozenset({"append", "barrier", "multi_set", "queue_push", "set", "wait"})
# monitored_barrier is no collective of the backend's own: it has no work that could be kept or made up.
_ISSUED = COLLECTIVE_OPS - {"monitored_barrier"}


class Skip(Strike):
    name = "skip"
    does = "The collective is not issued; its outputs stay as they are, and it counts as done. A store is not told."
    seen = "An early return, a `continue`, a branch on rank: the others wait, or are paired with the rank's next call."
    on = at({Kind.COLLECTIVE: COLLECTIVE_OPS, Kind.STORE: _WITHOUT_RESULT})
    bends = True
    replaces = True

    def strike(self, call: Call, proceed: Proceed) -> Any:
        from rankdrill.boundary.done import Done
        from rankdrill.faults.issue import give_back_number, tensors_of

        if call.step.kind is Kind.STORE:
            return None
        give_back_number(call)
        return None if call.step.op == "monitored_barrier" else Done(list(tensors_of(call)))


class Extra(Strike):
    name = "extra"
    does = "The collective is issued twice; the second result is thrown away, but waited for."
    seen = "A retry on one rank, a metric logged once too often: from here on the rank is one call ahead."
    on = at({Kind.COLLECTIVE: _ISSUED})
    bends = True

    def strike(self, call: Call, proceed: Proceed) -> Any:
        from rankdrill.faults.issue import DATA, issue, map_tensors
        from rankdrill.faults.works import Chained

        copies = {name: map_tensors(call.args[name], lambda t: t.clone()) for name in DATA if name in call.args}
        first = proceed(call)
        return Chained([first, issue(call.with_args(**copies), proceed, self.boundary)])


class Swap(Strike):
    name = "swap"
    does = "The collective is issued after the rank's next one; if none follows, it never is."
    seen = "Two independent collectives in an order that depends on a dict, a set or a hook: swapped on one rank."
    on = at({Kind.COLLECTIVE: _ISSUED})
    bends = True
    replaces = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._held: tuple[Call, Proceed] | None = None

    def strike(self, call: Call, proceed: Proceed) -> Any:
        from rankdrill.boundary.done import Done
        from rankdrill.faults.issue import give_back_number, tensors_of

        if self._held is not None:  # struck again before the one held back could follow
            return self.linger(call, proceed)
        give_back_number(call)
        self._held = call, proceed
        return Done(list(tensors_of(call)))

    def linger(self, call: Call, proceed: Proceed) -> Any:
        if self._held is None or call.step.kind is not Kind.COLLECTIVE:
            return proceed(call)
        from rankdrill.faults.issue import issue
        from rankdrill.faults.works import Chained

        (held, proceed_held), self._held = self._held, None
        first = proceed(call)
        second = issue(held, proceed_held, self.boundary)
        return first if first is None else Chained([first, second])


STRIKES: tuple[type[Strike], ...] = (Skip, Extra, Swap)
