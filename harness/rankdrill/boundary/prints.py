"""What lies in the memory that a call under way reads, which nobody may change until that is waited for.

Torch's own functions are seen as they write there; see `rankdrill.boundary.accesses`. What numpy or another library
writes into memory that it shares with a tensor is not: so a print is taken when the call is issued, and another when
somebody waits. Of a large tensor it is of windows all over it, for memory is slow. What the call itself writes has
none: of that, too, it shows whether it still lies where it lay.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Iterable
from typing import Any

import torch

from rankdrill.boundary.accesses import Use
from rankdrill.boundary.contracts import flatten
from rankdrill.boundary.modes_seam import plainly
from rankdrill.boundary.regions import Buffers, Region, region_of
from rankdrill.native import hot

__all__ = ["MOST_READ", "WAYS", "Print", "prints_of"]

MOST_READ = 1 << 14  # bytes: up to here all of it
_WINDOW = 64  # as native/prints.c
_WINDOWS = MOST_READ // _WINDOW
WAYS = (None, Use.CHANGE, Use.FREE, Use.MOVE)
"""What may have become of a tensor, as C counts it."""


class Print:
    """That of one tensor, or only where it lies if it is `written`. It keeps what would else be somebody else's."""

    __slots__ = ("_end", "_found", "_start", "_tensor", "written")

    def __init__(self, tensor: torch.Tensor, region: Region, *, written: bool, changes: bool) -> None:
        self._tensor, self._start, self._end = tensor, region.start, region.end
        self._found = None if changes else _print_of(region.start, region.end)
        self.written = written

    @property
    def change(self) -> Use | None:
        """What has become of it since, if anything."""
        with plainly():
            now = self._tensor.data_ptr()
        if now != self._start:
            return Use.MOVE if now else Use.FREE
        same = self._found is None or self._found == _print_of(self._start, self._end)
        return None if same else Use.CHANGE


def prints_of(args: dict[str, Any], buffers: Buffers) -> tuple[Print, ...]:
    """Of the tensors on the CPU that a call with these arguments works on."""
    written = {(region.start, region.end) for region in buffers.outputs}
    found = []
    for tensor in flatten([args.get("tensors"), args.get("outputs")]):
        region = region_of(tensor) if tensor.device.type == "cpu" else None
        if region is not None:
            changes = _meets_any(region, buffers.outputs)
            place = (region.start, region.end)
            found.append(Print(tensor, region, written=place in written, changes=changes))
    return tuple(found)


def _meets_any(region: Region, others: Iterable[Region]) -> bool:
    return any(region.start < other.end and other.start < region.end for other in others)


def _print_in_python(start: int, end: int) -> int:
    if end - start <= MOST_READ:
        return zlib.crc32(ctypes.string_at(start, end - start))
    places = [start + (end - start - _WINDOW) * each // (_WINDOWS - 1) for each in range(_WINDOWS)]
    return zlib.crc32(b"".join(ctypes.string_at(place, _WINDOW) for place in places))


_print_of = _print_in_python if hot is None else hot.print_of
