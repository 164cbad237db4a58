"""What a run on many ranks raises as one."""

from __future__ import annotations

from collections.abc import Sequence

from rankdrill.errors import RanksFailed

__all__ = ["group_of"]


def group_of(message: str, errors: Sequence[BaseException]) -> BaseExceptionGroup[BaseException]:
    """`errors` as one group: an `ExceptionGroup` if none of them is meant to end the process."""
    exceptions = [error for error in errors if isinstance(error, Exception)]
    if len(exceptions) < len(errors):
        return BaseExceptionGroup(message, list(errors))
    return RanksFailed(message, exceptions)
