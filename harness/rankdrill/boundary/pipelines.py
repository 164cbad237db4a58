"""The stages of a pipeline must cut batches into as many microbatches: that is compared as they begin to send."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from rankdrill.boundary.crossing import Watch
from rankdrill.boundary.pipelines_seam import STEPS, pipeline_around
from rankdrill.step import Contract, Step

__all__ = ["Pipelines"]


class Pipelines:
    """Those that make their messages on one group, of the global ranks `ranks`, in the order of their first ones."""

    def __init__(self, key: int, ranks: Sequence[int], place: int) -> None:
        digest = blake2b(f"pipelines of {key}".encode(), digest_size=8).digest()
        self._key = int.from_bytes(digest, "little")
        self._ranks, self._place = ranks, place
        self._begun: weakref.WeakSet[Any] = weakref.WeakSet()
        self._number = 0

    def begin(self, step: Step, watch: Watch) -> None:
        """Have what the stages of a pipeline must agree on compared, before `step`, if that is its first message."""
        __tracebackhide__ = True
        if step.site is None or step.site.via not in STEPS:
            return
        pipeline = pipeline_around(sys._getframe(1))
        if pipeline is None or pipeline.schedule in self._begun:
            return
        self._begun.add(pipeline.schedule)
        number, self._number = self._number, self._number + 1
        shown = f"{pipeline.microbatches} microbatches for {pipeline.stages} stages"
        for stage, place in pipeline.strays:
            shown += f", and takes stage {stage}, which is rank {self._ranks[place]}'s"
        strays = (stage for stage, _ in pipeline.strays)
        contract = Contract(step.site.via, sizes=(pipeline.microbatches, pipeline.stages, *strays), shown=shown)
        entering = step.like(op=contract.op, message=None, sequence=number, contract=contract, digest=contract.digest)
        watch.enter(self._key, self._ranks, self._place, entering)
