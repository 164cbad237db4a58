"""Whether ranks on several machines mean the same directory by its name, found out by looking, not by its kind."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

from rankdrill.gathers.agreement.call import GatherCall, Stored
from rankdrill.gathers.agreement.outcomes import TroubleKind
from rankdrill.gathers.agreement.slots import Slot
from rankdrill.gathers.encoding.wire import encode
from rankdrill.gathers.host.liveness import identify
from rankdrill.gathers.storage import files

__all__ = ["look_across", "require_sight"]

# So long a file of a rank on another machine may stay out of sight, as on NFS, before the directory counts as another.
SIGHT_S = 3.0
_PAUSE_S = 0.05


def require_sight(call: GatherCall, base: str) -> None:
    """After `agree`, raise StorageError on all ranks unless ranks on other machines have the same directory `base`."""
    if len(call.channel.hosts) == 1:
        return
    identity = identify()
    mark = call.attempt(TroubleKind.STORAGE, lambda: files.offer(base, encode(None), call.nonce, identity))
    try:
        slots = call.announce(Stored(mark.size, mark.digest, identity) if mark else None)
        look_across(call, base, slots)
        call.confirm()
    finally:
        if mark:
            with contextlib.suppress(OSError, MemoryError):
                files.remove(mark.path)


def look_across(call: GatherCall, base: str, slots: Sequence[Slot]) -> None:
    """Report trouble if what ranks on other machines have written below `base` cannot be seen on this one."""
    here = next(host for host in call.channel.hosts if call.channel.rank in host)
    until = time.monotonic() + min(SIGHT_S, call.wait_s / 2)
    far = [host[0] for host in call.channel.hosts if host is not here]
    unseen = [call.channel.labels[rank] for rank in far if not _sees(base, slots[rank], until)]
    if unseen:
        ranks = ("rank " if len(unseen) == 1 else "ranks ") + ", ".join(map(str, unseen))
        call.report(
            TroubleKind.STORAGE,
            f"{base} is not the directory of {ranks}, on another machine; give one that all ranks can see",
        )


def _sees(base: str, slot: Slot, until: float) -> bool:
    path = files.path_of(base, slot.nonce, slot.identity)
    while not os.path.lexists(path):
        if time.monotonic() >= until:
            return False
        time.sleep(_PAUSE_S)
    return True
