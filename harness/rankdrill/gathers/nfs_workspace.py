"""`NFSWorkspace`: each rank leaves a config and weights in a shared directory for any other rank to read."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import torch.distributed as dist

from rankdrill.errors import RankFailure, StorageError, UsageError, describe, encode_error
from rankdrill.gathers.agreement.call import GatherCall, Stored
from rankdrill.gathers.agreement.outcomes import TroubleKind
from rankdrill.gathers.agreement.patience import patience
from rankdrill.gathers.agreement.registry import channel_of
from rankdrill.gathers.agreement.slots import NONCE_BYTES
from rankdrill.gathers.encoding.coding import coding_for
from rankdrill.gathers.encoding.wire import Encoded
from rankdrill.gathers.host.liveness import identify
from rankdrill.gathers.network import torch_seam
from rankdrill.gathers.storage import files
from rankdrill.gathers.storage.announced import Announced, Announcements, remove
from rankdrill.gathers.storage.directories import make_private
from rankdrill.gathers.storage.sight import require_sight

__all__ = ["NFSWorkspace"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called

_WRITE = "NFSWorkspace.write_configs_and_weights"
_READ = "NFSWorkspace.read_configs_and_weights_from_rank"


class NFSWorkspace:
    """A shared directory in which each rank of the job leaves one config and its weights, for any rank to read.

    No rank waits for another in any of it: who writes when, and who reads after whom, is the caller's business. A
    reader gets the pair that a rank wrote last in this run, whole, or ``(None, None)``; never one of another run, a
    part of one, or one that somebody else put there. For that the ranks tell one another of their files through the
    store of the default group. Any object on the same path reads any rank's pair.

    With `meeting`, making one and writing are calls of all ranks of `group` together, which fail together, and pairs
    are among these: then everybody's is there when a rank has written, and ranks that do not see the same directory are
    told so.

    Without `workspace_path` the workspace is not initialised. A rank's file goes with its next write, with `close`, at
    the end of a ``with`` block, or when the process exits in good order; files of crashed processes go when a workspace
    is next made there. `path` is the directory, `rank` this rank's global one, `state_path` its own file. With
    `weights_only` pairs are unpickled by torch's safe unpickler only. `timeout`, in seconds and by default that of the
    group, bounds a reader's wait for a file that was written and is not visible yet, and with `meeting` each wait for
    the others.
    """

    def __init__(
        self,
        workspace_path: str | os.PathLike[str] | None = None,
        *,
        group: Any = None,
        meeting: bool = False,
        weights_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Make the directory. Raises StorageError; with `meeting` also ArgumentMismatch, on all ranks together."""
        self.path: Path | None = None
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self._meeting = meeting
        self._timeout = timeout
        self._weights_only = weights_only
        self._channel = channel_of(group)
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        if meeting:
            with GatherCall(self._channel, "NFSWorkspace", timeout, weights_only=weights_only) as call:
                base = call.attempt(TroubleKind.STORAGE, lambda: _prepared(workspace_path)) if workspace_path else None
                call.arguments = f"workspace_path={base}"
                call.agree()
                if base is not None:
                    require_sight(call, base)
            self.path = Path(base) if base is not None else None
        elif workspace_path:
            with self._by_itself("NFSWorkspace"):
                self.path = Path(_prepared(workspace_path))

    @property
    def is_initialized(self) -> bool:
        """Whether there is a directory to write to."""
        return self.path is not None

    @property
    def state_path(self) -> Path | None:
        """Where this rank's pair lies, or will lie if it has written none; None where there is no directory."""
        if self.path is None:
            return None
        left = self._announcements().ask(self.rank)
        return Path(left.offer.path if left else files.path_of(str(self.path), self._nonce, identify()))

    def write_configs_and_weights(self, config_json: Any, weights: Any) -> None:
        """Leave this rank's pair for the others, replacing what it left before.

        Raises StorageError and EncodeError, after which the pair written before is still there to read, and UsageError
        where the workspace is not initialised. With `meeting` all ranks write together, and raise these and the other
        errors of a gather together.
        """
        announcements, pair = self._announcements(), (config_json, weights)
        if self._meeting:
            self._write_together(announcements, pair)
            return
        with self._by_itself(_WRITE):
            try:
                payload = coding_for(self._weights_only).encode(pair)
            except Exception as error:
                failures = (RankFailure(self.rank, describe(error)),)
                refused = encode_error(describe(error), _WRITE, failures)
                refused.together = False
                raise refused from error
            file = self._written(payload, self._nonce)
            self._nonce = secrets.token_bytes(NONCE_BYTES)
            _leave(announcements, self.rank, file)

    def _write_together(self, announcements: Announcements, pair: tuple[Any, Any]) -> None:
        written: list[Announced] = []
        try:
            with GatherCall(self._channel, _WRITE, self._timeout, weights_only=self._weights_only) as call:
                payload = call.attempt(TroubleKind.ENCODE, lambda: call.coding.encode(pair))
                if payload is not None:
                    file = call.attempt(TroubleKind.STORAGE, lambda: self._written(payload, call.nonce))
                    written.extend([file] if file else [])
                offered = [Stored(file.offer.size, file.offer.digest, file.identity) for file in written]
                call.agree(stored=offered[0] if offered else None)
                call.attempt(TroubleKind.STORAGE, lambda: _leave(announcements, self.rank, written.pop()))
                call.confirm(all_read=False)  # that all have told of theirs
        finally:
            for file in written:
                remove(file)

    def _written(self, payload: Encoded, nonce: bytes) -> Announced:
        identity = identify()
        return Announced(files.offer(str(self.path), payload, nonce, identity), nonce, identity)

    def read_configs_and_weights_from_rank(self, target_rank: int) -> tuple[Any, Any]:
        """The pair that `target_rank`, a global rank, wrote last; ``(None, None)`` if it has not written.

        What fails is raised on this rank only: StorageError if the file is gone, cannot be seen within `timeout`, or is
        not the one that rank wrote; UsageError for a rank outside the group.
        """
        announcements = self._announcements()
        if target_rank not in self._channel.members:
            raise UsageError(f"target_rank={target_rank}: the workspace is of ranks {list(self._channel.members)}")
        try:
            until = time.monotonic() + patience(self._timeout, self._channel.timeout_s)
            opened = announcements.open(target_rank, until)
            if opened is None:
                return None, None
            config, weights = opened.load(coding_for(self._weights_only))
        except Exception as error:
            failure = RankFailure(target_rank, f"what it wrote cannot be read: {describe(error)}")
            raise StorageError(_READ, (failure,), together=False) from error
        return config, weights

    def close(self) -> None:
        """Remove what this rank left; nobody can read it from then on. Doing it twice is fine."""
        if self.path is not None:
            self._announcements().withdraw(self.rank)

    def __enter__(self) -> NFSWorkspace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _announcements(self) -> Announcements:
        if self.path is None:
            raise UsageError("this NFSWorkspace has no directory; give workspace_path")
        return Announcements(torch_seam.jobs_store(), str(self.path), self._channel.name if self._meeting else "")

    @contextmanager
    def _by_itself(self, doing: str) -> Iterator[None]:
        """What fails here is this rank's own."""
        try:
            yield
        except (OSError, MemoryError, RuntimeError) as error:
            failures = (RankFailure(self.rank, describe(error)),)
            raise StorageError(doing, failures, together=False) from error


def _leave(announcements: Announcements, rank: int, file: Announced) -> None:
    """Have it be what `rank` has left; if that fails, it is gone."""
    try:
        announcements.leave(rank, file)
    except BaseException:
        remove(file)
        raise


def _prepared(path: str | os.PathLike[str]) -> str:
    base = os.path.abspath(os.fspath(path))
    make_private(base)
    files.sweep(base)
    return base
