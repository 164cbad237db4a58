"""A question: calls to make, and what has to come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rankdrill.conformance.adapter import Adapter
from rankdrill.conformance.kit.on_rank.script import Call
from rankdrill.conformance.promises import Promise
from rankdrill.step import Kind

__all__ = ["After", "Ask", "Broken", "Question"]


@dataclass(frozen=True)
class After:
    """What happens to a rank at the last step of kind `kind` that its first call takes, or at the `first`: `strike`
    strikes it there, `when` that step has been taken or before."""

    rank: int
    kind: Kind
    strike: str
    first: bool = False
    when: str = "after"

    @property
    def kills(self) -> bool:
        """Whether the rank dies."""
        return self.strike == "kill"

    @property
    def ends(self) -> bool:
        """Whether the rank is no more, or does not answer any more."""
        return self.strike in ("kill", "stop")


@dataclass(frozen=True)
class Broken:
    """A line of a plan that breaks what a rank finds on disk; asked of those who write there."""

    line: str


@dataclass(frozen=True)
class Question:
    """Calls to make in a world of `size` ranks, and what has to come of it: the right results; of calls that somebody
    spoils, an error on all ranks. With `after` the calls are made once undisturbed, to see where that is; `broken` is
    what is wrong with the disk; `crashed` is of what kind a run that crashed has left what calls make. `beside` is
    another job that does the same at the same time. `watched` asks what was left and changed, too; `where` is the name
    of a directory for all that is written, asked of those who write. With `regroup` all make a new group at the end.
    """

    promise: Promise
    name: str
    size: int
    calls: tuple[Call, ...]
    after: After | None = None
    broken: Broken | None = None
    crashed: Kind | None = None
    beside: bool = False
    watched: bool = False
    where: str = ""
    regroup: bool = False

    @property
    def spoiled(self) -> bool:
        """Whether somebody cannot contribute."""
        return any(call.spoils is not None for call in self.calls)

    @property
    def meet(self) -> bool:
        """Whether there is a pause between calls: that they may follow at once is another promise."""
        return self.promise in (Promise.RIGHT, Promise.APART, Promise.CLEAN) and not self.spoiled

    @property
    def spared(self) -> bool:
        """Whether all ranks may raise as well: something was broken."""
        return self.broken is not None or (self.after is not None and self.after.ends)

    @property
    def id(self) -> str:
        return f"{self.name}-{self.size}ranks"


Ask = Callable[[Adapter, Sequence[int]], Iterator[Question]]
"""The questions of one promise, in worlds of the sizes that are given."""
