"""Copying between host and GPU through pinned memory: one stage is filled while the other is on its way.

A copy from or to ordinary memory is staged by the driver too, but nothing else goes on meanwhile. Pinned memory belongs
to nobody's result: it is taken for one transfer, and torch keeps it for the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from rankdrill.gathers.encoding.wire import bytes_of

__all__ = ["Staging"]

STAGE_BYTES = 8 << 20


class Staging:
    """Two stages for transfers with `device`, in which bytes wait for one direction at a time.

    On the CPU, which has nothing to pin for, it copies just as well. Raises MemoryError and what torch raises where
    there is no memory to pin.
    """

    def __init__(self, device: torch.device, stage_bytes: int = STAGE_BYTES) -> None:
        self.stage_bytes = stage_bytes
        self._device = device
        self._on_gpu = device.type == "cuda"
        with self._at_device():  # or memory is pinned in a context on another GPU
            stages = [
                torch.empty(stage_bytes, dtype=torch.uint8, device="cpu", pin_memory=self._on_gpu) for _ in range(2)
            ]
            self._stages = [(stage, torch.cuda.Event() if self._on_gpu else None) for stage in stages]  # type: ignore[no-untyped-call]

    def send(self, blocks: Iterable[memoryview], target: torch.Tensor) -> None:
        """Copy `blocks`, each of at most `stage_bytes`, one after the other into `target` on the device."""
        begin = 0
        with self._at_device():
            for number, block in enumerate(blocks):
                stage, event = self._stages[number % 2]
                _wait(event)  # until what it held before is on the device
                bytes_of(stage)[: block.nbytes] = block
                target[begin : begin + block.nbytes].copy_(stage[: block.nbytes], non_blocking=True)
                _record(event)
                begin += block.nbytes
            self._finish()

    def receive(self, source: torch.Tensor, target: memoryview) -> None:
        """Copy `source` on the device into `target`, of equally many bytes."""
        with self._at_device():
            for block, begin in self._arriving(source):
                target[begin : begin + block.nbytes] = block

    def _arriving(self, source: torch.Tensor) -> Iterator[tuple[memoryview, int]]:
        """The bytes of `source`, piece by piece; the next is on its way while one is looked at."""
        under_way: list[tuple[torch.Tensor, Any, int]] = []
        for number, begin in enumerate(range(0, len(source), self.stage_bytes)):
            stage, event = self._stages[number % 2]
            piece = source[begin : begin + self.stage_bytes]
            stage[: len(piece)].copy_(piece, non_blocking=True)
            _record(event)
            under_way.append((stage[: len(piece)], event, begin))
            if len(under_way) == len(self._stages):
                yield _arrived(*under_way.pop(0))
        for one in under_way:
            yield _arrived(*one)

    def _at_device(self) -> contextlib.AbstractContextManager[Any]:
        return torch.cuda.device(self._device) if self._on_gpu else contextlib.nullcontext()

    def _finish(self) -> None:
        for _, event in self._stages:
            _wait(event)


def _arrived(block: torch.Tensor, event: Any, begin: int) -> tuple[memoryview, int]:
    _wait(event)
    return bytes_of(block), begin


def _wait(event: Any) -> None:
    if event is not None:
        event.synchronize()


def _record(event: Any) -> None:
    if event is not None:
        event.record()
