"""What a run on many ranks raises as one."""

from __future__ import annotations

from collections.abc import Sequence
from traceback import walk_tb

from rankdrill.errors import RankVictim

__all__ = ["RanksFailed", "group_of"]


class RanksFailed(ExceptionGroup[Exception]):
    """What the ranks of one run raised, culprits first, and their victims.

    Hypothesis tells failures apart by the types and lines of a group's members, in order, and passes over a member that
    equals the group. How many ranks came to one line, and how many suffered from it, makes no other failure: so these
    members do. Nothing else compares exceptions.
    """

    def __eq__(self, other: object) -> bool:
        return other is self or any(other is member for member in self._repeated())

    __hash__ = ExceptionGroup.__hash__

    def _repeated(self) -> list[Exception]:
        seen: set[object] = set()
        repeated = []
        for member in self.exceptions:
            kind = type(member), _line(member)
            if isinstance(member, RankVictim) or kind in seen:
                repeated.append(member)
            seen.add(kind)
        return repeated


def group_of(message: str, errors: Sequence[BaseException]) -> BaseExceptionGroup[BaseException]:
    """`errors` as one group: an `ExceptionGroup` if none of them is meant to end the process."""
    exceptions = [error for error in errors if isinstance(error, Exception)]
    if len(exceptions) < len(errors):
        return BaseExceptionGroup(message, list(errors))
    return RanksFailed(message, exceptions)


def _line(error: BaseException) -> tuple[str, int] | None:
    last = None
    for frame, line in walk_tb(error.__traceback__):
        last = frame.f_code.co_filename, line
    return last
