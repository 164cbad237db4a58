"""Engines of Hypothesis's that a body starts itself, one on each rank: they draw alike, or do not start.

Private names used, checked by `tests/plugin/test_pytest_seam.py`: ``hypothesis.core.global_force_seed``, which is what
``--hypothesis-seed`` sets.
"""

from __future__ import annotations

from typing import Any

from hypothesis import core, stateful

from rankdrill.errors import UsageError

__all__ = ["draw_alike", "refuse_state_machines"]


def draw_alike(seed: int) -> None:
    """Let an inner `@given` draw from `seed`, the same on all ranks: in each example they then meet in collectives."""
    engine: Any = core
    if engine.global_force_seed is None:
        engine.global_force_seed = seed


def refuse_state_machines(world_size: int) -> None:
    """Have `run_state_machine_as_test` raise `UsageError` where there are other ranks.

    A machine draws its next rule from what it has come to: ranks of which one fails, or differs, go different ways.
    """
    if world_size == 1:
        return

    def refused(*args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        raise UsageError(
            "run_state_machine_as_test draws its rules while it runs, on each rank for itself; draw them as a list, "
            "with @given(st.lists(...)), or run the machine in a test without the ranks marker"
        )

    stateful.run_state_machine_as_test = refused
