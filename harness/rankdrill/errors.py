"""The whole error tree.

Every error rankdrill raises is a `RankdrillError`. Two families matter to callers: a `UsageError` is the
caller's mistake and names the value and the remedy; a `GatherError` is raised by **all** ranks of a gather
together and names the ranks that caused it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pickle import PicklingError
from traceback import walk_tb
from typing import Any

__all__ = [
    "ArgumentMismatch",
    "ContractBroken",
    "DecodeError",
    "Desynchronized",
    "DiagnosisFailed",
    "DumpError",
    "EncodeError",
    "FaultNotFired",
    "GatherError",
    "LedgerError",
    "OversizeError",
    "PeerLost",
    "PlanError",
    "RankDied",
    "RankFailure",
    "RankLeft",
    "RankStuck",
    "RankVictim",
    "RankdrillError",
    "RanksDisagree",
    "RanksFailed",
    "RemoteError",
    "StorageError",
    "TemplateDied",
    "UnsupportedPlatform",
    "UsageError",
    "WorldError",
    "describe",
    "encode_error",
]

CAUSE_CHARACTERS = 300  # of an exception's line that are told to other ranks


class RankdrillError(Exception):
    """Base of every error rankdrill raises."""


# ---------------------------------------------------------------------------------------------- usage


class UsageError(RankdrillError, ValueError):
    """The caller asked for something impossible: one line, the value, the remedy. The CLI exits with 2."""


class PlanError(UsageError):
    """A fault plan that does not parse, or asks for a strike where it has no meaning."""


class UnsupportedPlatform(UsageError):
    """This machine lacks what was asked for (GPUs, shared memory, Linux)."""


# ---------------------------------------------------------------------------------------------- gathers


@dataclass(frozen=True, slots=True)
class RankFailure:
    """One rank's part in a failed gather: its group rank and what went wrong, in one line.

    For a payload that cannot be loaded anywhere `rank` is the one that sent it.
    """

    rank: int
    cause: str

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.cause}"


class GatherError(RankdrillError):
    """A gather failed on every rank together.

    `path` is the gather's name; `failures` holds one `RankFailure` per rank at fault, in rank order, equal on
    all ranks wherever they could still talk to one another. Ranks are ranks of the gather's group. What ranks do
    without one another, as reading from an `NFSWorkspace`, fails without them: not `together`.
    """

    def __init__(self, path: str, failures: tuple[RankFailure, ...], hint: str = "", *, together: bool = True) -> None:
        self.path = path
        self.failures = failures
        self.hint = hint
        self.together = together
        super().__init__(path, failures, hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.failures, self.hint), {"together": self.together}

    @property
    def ranks(self) -> tuple[int, ...]:
        """The group ranks at fault, ascending."""
        return tuple(failure.rank for failure in self.failures)

    def __str__(self) -> str:
        causes = "; ".join(str(failure) for failure in self.failures) or "No rank is known to be at fault"
        together = " together on all ranks" if self.together else ""
        return f"{self.path} failed{together}. {causes}" + (f". {self.hint}" if self.hint else "")


class EncodeError(GatherError):
    """A rank could not serialize its payload: unpicklable, or out of memory while pickling.

    Where the rank was stopped by an error that callers of torch's gathers look for, as pickling raises `TypeError`,
    `AttributeError` and `pickle.PicklingError`, what all ranks raise is one of these, too. On that rank the error
    itself, with the line that raised it, is its `__cause__`.
    """


class OversizeError(GatherError, ValueError):
    """A payload does not fit the buffer. Also a `ValueError`, as the hand-written fixed buffers raise."""


class DecodeError(GatherError):
    """A payload could not be received or loaded: it does not unpickle, or there is no memory for it."""


class StorageError(GatherError):
    """A rank could not write, read or remove a file or shared-memory segment of the gather."""


class ArgumentMismatch(GatherError, ValueError):
    """Ranks called with arguments, or environment switches, that do not fit together."""


class Desynchronized(GatherError):
    """Ranks met in different calls; both call sites are named."""


class PeerLost(GatherError):
    """A rank died, left or did not come within the timeout. `ranks` is empty where the path cannot know which."""


# ---------------------------------------------------------------------------------------------- worlds


class WorldError(RankdrillError):
    """A rank of a world ended in another way than by returning or raising."""

    def __init__(self, message: str, rank: int | None = None) -> None:
        self.rank = rank
        super().__init__(message, rank)

    def __str__(self) -> str:
        return str(self.args[0])


class RankDied(WorldError):
    """The process of a rank ended: by a signal, or by `exit`."""


class RankStuck(WorldError):
    """A rank was still running at the deadline, or asleep for good, in a place where it waited for no other rank."""


class RankLeft(WorldError):
    """A rank returned while others wait for it in a collective that it never entered."""


class ContractBroken(WorldError):
    """Ranks met in one call of a group and did not agree there: on the op, its root, its sizes and the like.

    Raised on the rank that notices, before the backend sees its call; `rank` is that one, and need not be at fault.
    Also raised on a rank that touches memory which a call of its own still works on, and the error of a run in which
    nobody waited for such a call.
    """


class RankVictim(WorldError):
    """A rank that failed or hung only because another rank did."""


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
            kind = type(member), _last_line(member)
            if isinstance(member, RankVictim) or kind in seen:
                repeated.append(member)
            seen.add(kind)
        return repeated


def _last_line(error: BaseException) -> tuple[str, int] | None:
    last = None
    for frame, line in walk_tb(error.__traceback__):
        last = frame.f_code.co_filename, line
    return last


class TemplateDied(WorldError):
    """The process that ranks are forked from ended and took them along: no rank is at fault."""


class RanksDisagree(WorldError):
    """Ranks of one test ended in different ways (one skipped, another passed)."""


class FaultNotFired(WorldError):
    """A planned fault did not strike: no such step. The message lists the steps the rank did take."""


class DiagnosisFailed(RuntimeWarning):
    """rankdrill itself failed while it looked for what is wrong with a run, and tells how its ranks ended without."""


class LedgerError(RankdrillError):
    """A file that is no ledger, was written by an incompatible version, or says of itself what cannot be."""


class DumpError(RankdrillError):
    """A file that is no dump of a flight recorder, or not to be read as one; its text follows the file's name."""


class RemoteError(RankdrillError):
    """Stands in for an exception of a rank that could not be pickled; carries its type's name and traceback."""

    def __init__(self, type_name: str, message: str, traceback: str = "") -> None:
        self.type_name = type_name
        self.traceback = traceback
        super().__init__(type_name, message, traceback)

    def __str__(self) -> str:
        return f"{self.type_name}: {self.args[1]}"


def describe(error: BaseException) -> str:
    """An exception in one line; never raises, whatever its `__str__` does."""
    try:
        text = str(error)
    except Exception:
        text = "(its message cannot be shown)"
    name = type(error).__name__
    return " ".join(f"{name}: {text}".split())[:CAUSE_CHARACTERS] if text else name


# What pickling raises, and callers of torch's gathers look for.
_PICKLING = (TypeError, AttributeError, PicklingError)


def encode_error(cause: str, path: str, failures: tuple[RankFailure, ...], hint: str = "") -> EncodeError:
    """The `EncodeError` for `cause`, an exception in one line as `describe` makes it."""
    return _ENCODE_ERRORS.get(cause.partition(":")[0], EncodeError)(path, failures, hint)


def _also(kind: type[Exception]) -> type[EncodeError]:
    def reduce(self: EncodeError) -> tuple[Any, ...]:
        return encode_error, (kind.__name__, self.path, self.failures, self.hint), {"together": self.together}

    described = {"__doc__": f"An `EncodeError` because of a `{kind.__name__}`.", "__module__": __name__}
    return type(EncodeError.__name__, (EncodeError, kind), described | {"__reduce__": reduce})


_ENCODE_ERRORS = {kind.__name__: _also(kind) for kind in _PICKLING}
