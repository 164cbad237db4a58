"""Every path of the gathers behind one face, and what each rank finds wrong with one call of it."""

from __future__ import annotations

import io
from typing import Any

import torch
import torch.distributed as dist

from rankdrill.conformance.ways import WAYS, At, Receives
from rankdrill_strategies import explain_difference, scribble

# Generous for a loaded machine; nothing waits this long unless it is broken.
TIMEOUT_S = 20.0
_LARGE_BYTES = 1 << 24  # more than any payload drawn here encodes to

# Each path once: by another name it is the same, and a checkpoint stays. Where one rank receives it is the last.
_LEFT_OUT = {
    "gather_and_save_checkpoint",
    "all_gather/cpu",
    "all_gather_via_filesys/default",
    "gather/files",
    "gather_object/group_dst",
}
OBJECT_PATHS = [way.name for way in WAYS.values() if not way.tensors_only and way.name not in _LEFT_OUT]


def pack(payloads: list[Any]) -> bytes:
    """All ranks' payloads as bytes: by `torch.save`, which carries dtypes that plain pickle loses."""
    file = io.BytesIO()
    torch.save(payloads, file, pickle_protocol=5)
    return file.getvalue()


def unpack(packed: bytes) -> list[Any]:
    """The inverse of `pack`: new objects each time."""
    payloads: list[Any] = torch.load(io.BytesIO(packed), weights_only=False)
    return payloads


def drill(name: str, packed: bytes, directory: str) -> list[str]:
    """On each rank: gather its own of the packed payloads, and say what is wrong with what came of it."""
    way, at = WAYS[name], At(dist.group.WORLD, directory, TIMEOUT_S, room=_LARGE_BYTES)
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = unpack(packed)[rank]
    received = way.call(mine, at)
    expected = way.given_to(rank, unpack(packed))
    alone = way.receives is not Receives.ALL
    wrong = [f"round trip: {explain_difference(expected, received)}"]
    wrong.append(f"its own, changed by gathering it: {explain_difference(unpack(packed)[rank], mine)}")
    if rank == 0 or alone:
        # Of the expected ones no more can be changed, unless something came that cannot be written. They may be fewer:
        # pickle keeps an array read-only, most paths hand out one that can be written.
        counts = scribble(received), scribble(way.given_to(rank, unpack(packed)))
        wrong.append(f"changeable: {None if counts[0] >= counts[1] else counts}")
    dist.barrier()
    if rank != 0 and not alone:
        wrong.append(f"received, changed from rank 0: {explain_difference(expected, received)}")
    wrong.append(f"its own, changed through what came back: {explain_difference(unpack(packed)[rank], mine)}")
    again = way.call(torch.tensor(rank), at)
    ranks = way.given_to(rank, [torch.tensor(each) for each in range(size)])
    wrong.append(f"next call: {explain_difference(ranks, again)}")
    return [each for each in wrong if not each.endswith(": None")]
