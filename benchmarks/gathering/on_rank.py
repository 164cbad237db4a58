"""What every rank does: prepare a way, check once what arrives, then take time, CPU and memory of some calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from benchmarks.gathering import memory
from benchmarks.gathering.payloads import PAYLOADS, TINY, Payload, as_flat, equal
from benchmarks.gathering.setting import Call, Setting
from benchmarks.gathering.ways import WAYS

ROW_OF_SMALL, ROW_OF_MIDDLING = 20, 5

if TYPE_CHECKING:
    from rankdrill.worlds.context import RankContext


@dataclass(frozen=True)
class Sample:
    """One call on one rank: wall seconds, CPU seconds of all its threads, growth in bytes."""

    seconds: float
    cpu: float
    growth: int | None


class WrongResult(Exception):  # noqa: N818 (it reads as what happened)
    """A gather gave back something else than what the ranks put in."""


def measure(
    context: RankContext, key: str, payload_key: str, directory: str, prefix: str, calls: int, check: bool
) -> list[Sample]:
    """Samples of `calls` calls; with `check` what the last one gave back is compared with what should arrive."""
    with context.boundary.closed():  # writing down every step would cost the ways with most steps most
        return _measure(key, payload_key, directory, prefix, calls, check)


def _measure(key: str, payload_key: str, directory: str, prefix: str, calls: int, check: bool) -> list[Sample]:
    way, payload = WAYS[key], PAYLOADS[payload_key]
    setting = Setting(dist.get_rank(), dist.get_world_size(), payload, directory, prefix)
    # Groups, threads and segments' trackers that a first call makes belong to no payload.
    warm = way.make(replace(setting, payload=TINY), TINY.make(setting.rank))
    warm()
    dist.barrier()  # what `warm` holds may be what another rank still reads
    del warm
    call = way.make(setting, payload.make(setting.rank))
    samples, values = take(call, calls, dist.barrier, row_of(payload, check), between=way.pause)
    if check:
        compare(values, payload, setting, first_only=way.first_only, flat=way.flat)
    return samples


def row_of(payload: Payload, check: bool) -> int:
    """How many calls make one sample: ranks leave a barrier about as far apart as a small call takes."""
    if check:
        return 1
    return ROW_OF_SMALL if payload.small else ROW_OF_MIDDLING if payload.middling else 1


def take(
    call: Call, count: int, barrier: Callable[[], object], row: int = 1, between: Callable[[], object] | None = None
) -> tuple[list[Sample], list[Any]]:
    """`count` samples of `row` calls each, and what the last call gave back; a sample is the mean of its row.

    `between` is called between the calls of a row, and counts.
    """
    samples: list[Sample] = []
    values: list[Any] = []
    memory.tidy()
    for number in range(count):
        values = []  # before the memory is looked at
        if number and samples[-1].growth and samples[-1].growth > memory.WORTH_TIDYING:
            memory.tidy()
        before = memory.start()
        barrier()
        cpu, began = time.process_time(), time.perf_counter()
        for turn in range(row):
            if turn and between is not None:
                between()
            values = []
            values = call()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        samples.append(Sample(seconds / row, cpu / row, memory.growth(before)))
    barrier()
    return samples, values


def compare(values: list[Any], payload: Payload, setting: Setting, *, first_only: bool, flat: bool) -> None:
    """Raise WrongResult unless `values` are all ranks' payloads in rank order."""
    wanted = [] if first_only and setting.rank else setting.ranks
    if len(values) != len(wanted):
        raise WrongResult(f"{len(values)} values arrived on rank {setting.rank}, not {len(wanted)}")
    for rank, value in zip(wanted, values, strict=True):
        expected = payload.make(rank)
        if not equal(value, as_flat(expected) if flat else expected):
            raise WrongResult(f"what rank {rank} sent is not what arrived on rank {setting.rank}")
