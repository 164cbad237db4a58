"""`NFSWorkspace`: each rank leaves a config and weights in a shared directory for any other rank to read."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from types import TracebackType
from typing import Any

from rankdrill.errors import RankFailure, StorageError, UsageError, describe
from rankdrill.gathers.agreement.call import Call, Stored
from rankdrill.gathers.agreement.channel import DEFAULT_TIMEOUT_S
from rankdrill.gathers.agreement.outcomes import Kind
from rankdrill.gathers.agreement.registry import channel_of
from rankdrill.gathers.agreement.slots import Slot
from rankdrill.gathers.encoding.coding import coding_for
from rankdrill.gathers.host.liveness import identify
from rankdrill.gathers.storage import files
from rankdrill.gathers.storage.directories import make_private
from rankdrill.gathers.storage.sight import require_sight

__all__ = ["NFSWorkspace"]


class NFSWorkspace:
    """A shared directory in which each rank of `group` leaves one config and its weights.

    Making one and `write_configs_and_weights` are calls of all ranks together; reading is each rank's own business and
    needs no barrier: `write` returns when everybody has written. Without `workspace_path` the workspace is not
    initialised. This rank's file goes with the next write, with `close`, at the end of a ``with`` block, when the
    object goes, or when the process exits in good order; files of crashed processes go when a workspace is
    next made there.

    With `weights_only` pairs are unpickled by torch's safe unpickler only. `timeout` is in seconds and bounds each wait
    for the others, and a reader's for a file that is not visible yet.
    """

    def __init__(
        self,
        workspace_path: str | os.PathLike[str] | None = None,
        *,
        group: Any = None,
        weights_only: bool = False,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Make the directory on all ranks. Raises ArgumentMismatch (different arguments), StorageError, together."""
        self._base: str | None = None
        self._channel = channel_of(group)
        self._timeout = timeout
        self._weights_only = weights_only
        self._slots: list[Slot] = []
        self._mine: list[files.Offer] = []
        self._finalizer = weakref.finalize(self, _remove_all, self._mine)
        with Call(self._channel, "NFSWorkspace", timeout, weights_only=weights_only) as call:
            if workspace_path:
                self._base = call.attempt(Kind.STORAGE, lambda: _prepared(workspace_path))
            call.arguments = f"workspace_path={self._base}"
            call.agree()
            if self._base is not None:
                require_sight(call, self._base)

    @property
    def is_initialized(self) -> bool:
        """Whether there is a directory to write to."""
        return self._base is not None

    def write_configs_and_weights(self, config_json: Any, weights: Any) -> None:
        """Leave this rank's pair for the others, replacing what it left before; all ranks write together.

        Raises StorageError, EncodeError and the other errors of a gather on all ranks together, UsageError where the
        workspace is not initialised. After an error the pairs written before are still there to read.
        """
        base = self._initialised()
        written: list[files.Offer] = []
        try:
            path = "NFSWorkspace.write_configs_and_weights"
            with Call(self._channel, path, self._timeout, weights_only=self._weights_only) as call:
                payload = call.attempt(Kind.ENCODE, lambda: call.coding.encode((config_json, weights)))
                identity = identify()
                if payload is not None:
                    offered = call.attempt(Kind.STORAGE, lambda: files.offer(base, payload, call.nonce, identity))
                    written.extend([offered] if offered else [])
                stored = Stored(written[0].size, written[0].digest, identity) if written else None
                slots = call.agree(stored=stored)
        except BaseException:
            _remove_all(written)
            raise
        _remove_all(self._mine)
        self._mine.extend(written)
        self._slots = slots

    def read_configs_and_weights_from_rank(self, target_rank: int) -> tuple[Any, Any]:
        """The pair that `target_rank`, a global rank, wrote last; ``(None, None)`` if it has not written.

        Not a call of all ranks: what fails is raised on this rank only. Raises StorageError if the file is gone or is
        not the one that rank wrote, UsageError for a rank outside the group.
        """
        self._initialised()
        if target_rank not in self._channel.members:
            raise UsageError(f"target_rank={target_rank}: the workspace is of ranks {list(self._channel.members)}")
        if not self._slots:
            return None, None
        slot = self._slots[self._channel.members.index(target_rank)]
        try:
            opened = files.read(self._offer_of(slot), slot.nonce, time.monotonic() + self._timeout)
            config, weights = opened.load(coding_for(self._weights_only))
        except Exception as error:
            label = self._channel.labels[slot.rank]
            failure = RankFailure(label, f"what it wrote cannot be read: {describe(error)}")
            raise StorageError("NFSWorkspace.read_configs_and_weights_from_rank", (failure,)) from error
        return config, weights

    def close(self) -> None:
        """Remove what this rank left; nobody can read it from then on. Doing it twice is fine."""
        self._slots = []
        _remove_all(self._mine)

    def __enter__(self) -> NFSWorkspace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _initialised(self) -> str:
        if self._base is None:
            raise UsageError("this NFSWorkspace has no directory; give workspace_path")
        return self._base

    def _offer_of(self, slot: Slot) -> files.Offer:
        path = files.path_of(str(self._base), slot.nonce, slot.identity)
        return files.Offer(path, slot.size, slot.digest, self._mine[0].owner if self._mine else -1)


def _prepared(path: str | os.PathLike[str]) -> str:
    base = os.path.abspath(os.fspath(path))
    make_private(base)
    files.sweep(base)
    return base


def _remove_all(offers: list[files.Offer]) -> None:
    for offered in offers:
        with contextlib.suppress(OSError, MemoryError):
            files.remove(offered.path)
    offers.clear()
