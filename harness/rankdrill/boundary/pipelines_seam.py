"""Private names of torch's pipelines; `tests/boundary/test_torch_seam.py` fails when one changes.

What all stages of a pipeline must agree on is an argument that a schedule keeps for itself: into how many microbatches
each batch goes, ``_n_microbatches``; how many stages there are, its stages know, ``_stage`` or ``_stages``, and whose
they are, ``stage_index_to_group_rank``. From the messages nobody can tell who has other numbers. Which schedule makes a
message is not handed on: it is on the stack, in ``PipelineScheduleSingle.step`` and ``PipelineScheduleMulti.step``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

__all__ = ["STEPS", "Pipeline", "pipeline_around"]

STEPS = frozenset({"PipelineScheduleSingle.step", "PipelineScheduleMulti.step"})
"""The functions in which a pipeline makes its messages, as call sites have them."""
_SCHEDULES = "torch.distributed.pipelining.schedules"


class Pipeline(NamedTuple):
    """The `schedule` that is at work, and what all its stages must have alike."""

    schedule: Any
    microbatches: int
    stages: int
    strays: tuple[tuple[int, int], ...] = ()
    """The stages that this rank has taken, and the members of the group whose they are, where those are others."""


def pipeline_around(frame: FrameType | None) -> Pipeline | None:
    """The pipeline in whose step `frame` is; None if it is in none, or one that does not say these numbers."""
    while frame is not None:
        if frame.f_globals.get("__name__") == _SCHEDULES and frame.f_code.co_qualname in STEPS:
            return _read(frame.f_locals.get("self"))
        frame = frame.f_back
    return None


def _read(schedule: Any) -> Pipeline | None:
    stages = getattr(schedule, "_stages", None) or [getattr(schedule, "_stage", None)]
    microbatches, count = getattr(schedule, "_n_microbatches", None), getattr(stages[0], "num_stages", None)
    if not isinstance(microbatches, int) or not isinstance(count, int):
        return None
    return Pipeline(schedule, microbatches, count, tuple(_strays(stages)))


def _strays(stages: Sequence[Any]) -> Iterator[tuple[int, int]]:
    for stage in stages:
        place = getattr(stage, "stage_index_to_group_rank", {}).get(getattr(stage, "stage_index", None))
        if place is not None and place != getattr(stage, "group_rank", place):
            yield stage.stage_index, place
