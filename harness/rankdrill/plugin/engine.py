"""The one engine and the bodies that run elsewhere: what it gives them to draw from, and what they say to it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from hypothesis import core, event, target
from hypothesis.control import current_build_context
from hypothesis.internal.conjecture.engine import ConjectureRunner
from hypothesis.internal.conjecture.shrinker import Shrinker
from hypothesis.strategies import DataObject

from rankdrill.errors import UsageError
from rankdrill.plugin.ends import PhaseEnd
from rankdrill.worlds.job import dump

__all__ = ["count_only", "engine_for_ranks", "refuse_what_draws", "refuse_what_stays", "tell_engine"]

_OURS = "rankdrill"  # among what took time to draw
_LATER = "draws inside the test, where each rank would draw its own"
_REMEDIES = {
    "data": "draw it in @given",
    "randoms": "draw a seed with st.integers(), and make random.Random(seed) of it",
}


def refuse_what_draws(drawn: Mapping[str, Any]) -> None:
    """Raise `UsageError` if one of an example's values asks the engine for more while the body runs."""
    __tracebackhide__ = True
    for name, value in drawn.items():
        kind = _draws_later(value)
        if kind:
            raise UsageError(f"{name}=st.{kind}() {_LATER}; {_REMEDIES[kind]}")


def refuse_what_stays(drawn: Mapping[str, Any]) -> None:
    """Raise `UsageError` if one of an example's values cannot be sent to other processes."""
    __tracebackhide__ = True
    for name, value in drawn.items():
        try:
            dump(value)
        except Exception as error:
            raise UsageError(
                f"{name}={value!r} cannot be sent to the ranks ({error}); draw what it can be made from there"
            ) from None


def tell_engine(ends: Iterable[PhaseEnd]) -> None:
    """Record what bodies said to `event()` and `target()`: each event once, of observations of a label the largest."""
    targets: dict[str, float] = {}
    for end in ends:
        for said, payload in end.events:
            event(said, payload)
        for label, observed in end.targets:
            targets[label] = max(observed, targets.get(label, observed))
    for label, observed in targets.items():
        target(observed, label=label)


@contextmanager
def engine_for_ranks(spoils: Callable[[], bool]) -> Iterator[None]:
    """Until this ends, the engine knows that bodies run elsewhere.

    It does not trace which lines ran: here they are rankdrill's. It goes on to explain which parts of an example do not
    matter, by hundreds of others, unless failing `spoils` the ranks: each would wait for new ones, or for a hang.
    Nor does it take for slow drawing what `count_only` has taken off: new ranks may take as long as it allows for all.
    """
    explain, check_health = Shrinker.explain, ConjectureRunner.record_for_health_check

    def explain_cheaply(shrinker: Any) -> None:
        if not spoils():
            explain(shrinker)

    def check_health_of_draws(runner: Any, data: Any) -> None:
        data.draw_times.pop(_OURS, None)
        check_health(runner, data)

    with (
        mock.patch.object(ConjectureRunner, "record_for_health_check", check_health_of_draws),
        mock.patch.object(core.StateForActualGivenExecution, "_should_trace", return_value=False),
        mock.patch.object(Shrinker, "explain", explain_cheaply),
    ):
        yield


def count_only(seconds: float, *, since: float) -> None:
    """Of the time that this example has taken `since` then, hold only `seconds` against it.

    Hypothesis takes off what it spent drawing; to bring up fresh ranks and to exchange messages is no more the test's.
    """
    times = current_build_context().data.draw_times
    times[_OURS] = times.get(_OURS, 0.0) + time.perf_counter() - since - seconds


def _draws_later(value: Any) -> str:
    if isinstance(value, DataObject):
        return "data"
    if isinstance(value, random.Random) and type(value).__module__.startswith("hypothesis."):
        return "randoms"
    return ""
