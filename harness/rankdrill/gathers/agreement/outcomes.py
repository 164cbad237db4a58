"""What went wrong on a rank, as data that travels, and the error it becomes on all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from rankdrill.errors import (
    ArgumentMismatch,
    DecodeError,
    Desynchronized,
    GatherError,
    OversizeError,
    PeerLost,
    RankFailure,
    StorageError,
    encode_error,
)

__all__ = ["Trouble", "TroubleKind", "together"]


class TroubleKind(IntEnum):
    """Why a rank cannot go on; the larger number decides the type of the error when ranks differ."""

    OK = 0
    DECODE = 1
    STORAGE = 2
    OVERSIZE = 3
    ENCODE = 4
    ARGUMENT = 5
    LOST = 6
    DESYNC = 7


_ERRORS: dict[TroubleKind, type[GatherError]] = {
    TroubleKind.DECODE: DecodeError,
    TroubleKind.STORAGE: StorageError,
    TroubleKind.OVERSIZE: OversizeError,
    TroubleKind.ARGUMENT: ArgumentMismatch,
    TroubleKind.LOST: PeerLost,
    TroubleKind.DESYNC: Desynchronized,
}


@dataclass(frozen=True)
class Trouble:
    """One rank's trouble. `culprit` is the group rank to blame, where that is not the rank that reports it."""

    kind: TroubleKind
    cause: str
    culprit: int | None = None


def together(path: str, troubles: Sequence[tuple[int, Trouble]], hint: str = "") -> GatherError:
    """The error for `troubles`, (reporting rank, trouble) in rank order; equal on all ranks that see the same."""
    kind = max((trouble.kind for _, trouble in troubles), default=TroubleKind.LOST)
    causes: dict[int, dict[str, list[int]]] = {}
    for reporter, trouble in troubles:
        blamed = reporter if trouble.culprit is None else trouble.culprit
        causes.setdefault(blamed, {}).setdefault(trouble.cause, []).append(reporter)
    failures = tuple(RankFailure(rank, _in_words(rank, causes[rank])) for rank in sorted(causes))
    if kind is TroubleKind.ENCODE:
        first = next(trouble.cause for _, trouble in troubles if trouble.kind is kind)
        return encode_error(first, path, failures, hint)
    return _ERRORS[kind](path, failures, hint)


def _in_words(blamed: int, causes: dict[str, list[int]]) -> str:
    """All causes given for one rank, each with the ranks that report it where they are others."""
    parts = []
    for cause, reporters in causes.items():
        seen_by = ", ".join(map(str, reporters))
        parts.append(cause if reporters == [blamed] else f"{cause} (on rank {seen_by})")
    return "; ".join(parts)
