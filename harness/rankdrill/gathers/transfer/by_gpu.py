"""Payloads by one all_gather on the group's GPUs, each padded to the largest."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Sequence
from typing import Any

import torch

from rankdrill.gathers.agreement.call import GatherCall
from rankdrill.gathers.agreement.line import LineDownError
from rankdrill.gathers.agreement.outcomes import TroubleKind
from rankdrill.gathers.agreement.slots import DIGEST_BYTES, Slot
from rankdrill.gathers.encoding.wire import Encoded
from rankdrill.gathers.host.pages import fresh
from rankdrill.gathers.network import torch_seam
from rankdrill.gathers.transfer.moves import Loader, of_frame, over_the_network
from rankdrill.gathers.transfer.staging import Staging

__all__ = ["at_all_padded", "device_of", "name_gpu", "require_own_gpus"]

_POLL_S = 0.0002


def device_of(group: Any) -> torch.device:
    """The GPU that `group` works on: the one it was bound to when it was made, else the current one."""
    return torch_seam.bound_device(group) or torch.device("cuda", torch.cuda.current_device())


def name_gpu(device: torch.device) -> bytes:
    """A name that no other GPU has, wherever; a new one each time where torch does not know it.

    One GPU has several where NCCL is told by NCCL_HOSTID that it is on several hosts: it then lets ranks share it.
    """
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    if uuid is None:
        return secrets.token_bytes(DIGEST_BYTES)
    named = f"{uuid} {os.environ.get('NCCL_HOSTID', '')}"
    return hashlib.blake2b(named.encode(errors="surrogateescape"), digest_size=DIGEST_BYTES).digest()


def require_own_gpus(call: GatherCall, slots: Sequence[Slot]) -> None:
    """After `agree`, raise ArgumentMismatch on all ranks if two have announced the same GPU, which NCCL refuses."""
    firsts: dict[bytes, int] = {}
    causes = {}
    for slot in slots:
        first = firsts.setdefault(slot.digest, slot.rank)
        if first != slot.rank:
            causes[slot.rank] = (
                f"is on the same GPU as rank {call.channel.labels[first]}; "
                "call torch.cuda.set_device(LOCAL_RANK) first, or give init_process_group its device_id"
            )
    call.require(TroubleKind.ARGUMENT, causes)


def at_all_padded(
    call: GatherCall, slots: Sequence[Slot], payload: Encoded | None, group: Any, device: torch.device
) -> list[Loader]:
    """Every rank's payload, by rank, on every rank; those that came with their slots are not sent again.

    The device holds N + 1 times the largest meanwhile.
    """
    large = [slot.rank for slot in slots if not slot.inline]
    if not large or call.channel.size == 1:
        return over_the_network(call, slots, payload, large)
    widest = max(slots[rank].size for rank in large)
    staging = Staging(device)
    mine = torch.empty(widest, dtype=torch.uint8, device=device)
    if payload is not None and call.channel.rank in large:
        staging.send(payload.blocks(call.frame_nonce, staging.stage_bytes), mine)
    received = torch.empty(widest * len(slots), dtype=torch.uint8, device=device)
    options = torch_seam.AllgatherOptions()
    work = call.channel.line.start(lambda: group.allgather([list(torch.split(received, widest))], [mine], options))
    _wait_for_device(work, call.wait_s, device)
    loaders = [of_frame(call, slot) for slot in slots]
    for rank in large:
        frame = fresh(slots[rank].size)
        staging.receive(received[rank * widest : rank * widest + slots[rank].size], frame)
        loaders[rank] = of_frame(call, slots[rank], frame)
    return loaders


def _wait_for_device(work: Any, timeout_s: float, device: torch.device) -> None:
    """Wait for a collective on a device; `Work.wait` of NCCL returns before it is over and knows no timeout."""
    deadline = time.monotonic() + timeout_s
    while not work.is_completed():
        if time.monotonic() > deadline:
            raise LineDownError(f"a transfer on the device took longer than {timeout_s} s")
        time.sleep(_POLL_S)
    work.wait()
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
