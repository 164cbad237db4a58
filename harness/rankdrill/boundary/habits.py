"""Calls that a program makes again and again from the same line: what never changes about one is worked out once.

A program's loop makes the same few calls, and nearly all of them are of a well known shape: torch waits for them before
it returns, they have options that ask for nothing special, and all there is to know of their tensors is dtypes and
shapes. Of such a call line and arguments make one key, and whoever has that has all of it: the step but for its number,
its record, and what is posted of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch.distributed as dist

from rankdrill.boundary.contracts import REDUCING, ROOTED, Terms, describe, flatten
from rankdrill.boundary.gaps import MINDING_GAPS
from rankdrill.boundary.strides import MINDING_ORDER
from rankdrill.ledger import LedgerWriter, Stencil
from rankdrill.native import hot
from rankdrill.step import MESSAGES, Site, Step

if TYPE_CHECKING:
    from rankdrill.boundary.crossing import Boundary, Watch

__all__ = ["WELL_KNOWN", "Habit", "Key", "KeyOf", "plain_keys_of", "well_known"]

WELL_KNOWN = frozenset({("opts",), ("tensors", "opts"), ("outputs", "tensors", "opts")})
"""What the calls are given, by position, that have nothing more to them than their tensors and options."""
Key: TypeAlias = Hashable
KeyOf: TypeAlias = Callable[[tuple[Any, ...], Site | None], Key | None]


class _Entered(Protocol):
    """A group that tells the watch what is about to be done on it."""

    boundary: Boundary

    def entrance(self, step: Step) -> Callable[[int], None]: ...


if TYPE_CHECKING:

    class _Suited:
        ledger: LedgerWriter | None
        watch: Watch | None
        stencil: Stencil | None
        enter: Callable[[int], None] | None

elif hot is None:

    class _Suited:
        __slots__ = ("enter", "ledger", "stencil", "watch")

else:
    _Suited = hot.Suited


class Habit(_Suited):
    """One such call of one group: its step, without a number, and what writes it down and posts it.

    The latter are made when they are first needed, and anew when the boundary has another ledger or another watch.
    """

    __slots__ = ("step", "terms")

    def __init__(self, step: Step, terms: Terms) -> None:
        self.step = step
        self.terms = terms  # held, since a habit is known by their identity
        self.ledger = self.watch = None
        self.stencil = self.enter = None

    def suit(self, group: _Entered) -> None:
        """Write to the ledger, and tell the watch, that the boundary of `group` has now."""
        ledger, watch = group.boundary.ledger, group.boundary.watch
        self.stencil = None if ledger is None else ledger.stencil(self.step)
        self.enter = None if watch is None else group.entrance(self.step)
        self.ledger, self.watch = ledger, watch


def well_known(op: str, names: tuple[str, ...]) -> bool:
    """Whether calls of `op`, which takes arguments of these names, may have a key."""
    return names in WELL_KNOWN and op not in MESSAGES


def plain_keys_of(op: str) -> KeyOf:
    """What tells a well known `op`, by its arguments and line, from other calls of one group.

    There is no key of one that has more to it: that torch does not wait for, or that has gaps in its tensors, or one
    of them for several. Sites are told apart by identity: who keeps a key keeps the site too.
    """
    reduces, rooted, reduction = op in REDUCING, op in ROOTED, dist.ReduceOp
    minds_gaps = op in MINDING_GAPS or op in MINDING_ORDER

    def key_of(args: tuple[Any, ...], site: Site | None) -> Key | None:
        opts, reduced, root = args[-1], None, None
        try:
            if opts.asyncOp:
                return None
            if reduces:
                reduced = opts.reduceOp
                if not isinstance(reduced, reduction):
                    return None
                reduced = hash(reduced)  # its number: torch's enum is compared by way of its Python methods
            if rooted:
                root = opts.rootRank
            if minds_gaps and not all(tensor.is_contiguous() for tensor in flatten(list(args[:-1]))):
                return None
            if any(map(_repeats, args[:-1])):
                return None
        except (AttributeError, TypeError, RuntimeError):  # a torch whose options are others, or somebody's own
            return None
        if len(args) == 2:
            return op, id(site), reduced, root, describe(args[0])
        return op, id(site), reduced, root, *[describe(each) for each in args[:-1]]

    return key_of


def _repeats(given: Any) -> bool:
    """Whether a tensor stands twice in a list, one after the other: see `shared_outputs`."""
    if not isinstance(given, list):
        return False
    return any(one is other for one, other in pairwise(given)) or any(map(_repeats, given))
