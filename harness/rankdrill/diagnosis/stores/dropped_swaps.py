"""Swaps of a key that failed, and nobody looked: ranks get a key, and drop what `compare_set` says of the swap.

Of two that swap it from one value to two others, each of which is that and something more, one has failed, and what it
would have added is missing. Who goes by what comes back, or by what it got, asks again and again, or looks at the key
once more before it goes on to a collective may have noticed; and who would put something else there may stand for
election, and not want to win.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rankdrill.diagnosis.calls.tree import calls_at, function_around, name_called
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.stores.changes import SWAP
from rankdrill.diagnosis.stores.flow import depends_on, goes_by
from rankdrill.diagnosis.stores.source import asks_again
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import Kind, Site

__all__ = ["dropped_swap"]

_GETS = frozenset({"get", "multi_get"})


@dataclass(frozen=True, slots=True)
class _Swap:
    """Rank `rank` got a key in `got`, swapped it in `put`, and did not look at what became of that."""

    rank: int
    got: Record
    put: Record

    @property
    def expected(self) -> str:
        return self.put.step.fingerprint.partition(" to ")[0]

    @property
    def adds(self) -> bool:
        """Whether it would have put there what was there, and more."""
        before, _, after = self.put.step.fingerprint.partition(" to ")
        inner = before[1:-1]
        return before[:1] == "'" and len(inner) > 0 and inner in after[1:-1] and inner != after[1:-1]

    @property
    def lines(self) -> tuple[Site | None, Site | None]:
        return self.got.step.site, self.put.step.site

    def fails_beside(self, other: _Swap) -> bool:
        """Whether one of the two must have failed, and was to do something else."""
        alike = self.rank != other.rank and self.expected == other.expected
        together = self.got.end_ns < other.put.end_ns and other.got.end_ns < self.put.end_ns
        return alike and together and self.put.step.fingerprint != other.put.step.fingerprint


def dropped_swap(views: Mapping[int, LedgerView]) -> Finding | None:
    """The swaps of one key of which some have failed unseen, by ranks with the ledgers `views`; None where none did."""
    by_key: dict[int, list[_Swap]] = {}
    for rank, view in views.items():
        for swap in _swaps_of(rank, view):
            by_key.setdefault(swap.put.step.digest, []).append(swap)
    return next((found for swaps in by_key.values() if (found := _told(swaps, views)) is not None), None)


def _told(swaps: Sequence[_Swap], views: Mapping[int, LedgerView]) -> Finding | None:
    failed = [one for one in swaps if any(one.fails_beside(other) for other in swaps)]
    if not failed:
        return None
    those = {one.rank: one for one in reversed(failed)}
    alike: dict[object, list[int]] = {}
    for rank in sorted(those):
        alike.setdefault(those[rank].lines, []).append(rank)
    sides = tuple(_side(ranks, those) for ranks in alike.values())
    # Of several that do the same, and nobody does better, none is more at fault than the next.
    key, better = failed[0].put.step.target, _others_swapping(failed[0].put.step.digest, those, views)
    return Finding(FindingKind.LOST_UPDATE, f"key {key!r}", "value", sides, tuple(sorted(those)) if better else ())


def _others_swapping(key: int, those: Mapping[int, _Swap], views: Mapping[int, LedgerView]) -> bool:
    return any(
        record.step.op == SWAP and record.step.digest == key
        for rank, view in views.items()
        if rank not in those
        for record in view.where(lambda kind, state: kind is Kind.STORE)
    )


def _side(ranks: Sequence[int], those: Mapping[int, _Swap]) -> Side:
    first = those[ranks[0]]
    s = "s" if len(ranks) == 1 else ""
    key, got = first.put.step.target, first.got.step
    did = f"{got.op}{s} {key!r} at {got.site} and then swap{s} it, whether or not others have changed it meanwhile"
    return side_of(ranks, did, [those[rank].put.step.site for rank in ranks])


def _swaps_of(rank: int, view: LedgerView) -> Iterator[_Swap]:
    """Those of `rank` of what it had got since the last collective, once it comes to the next, or to its end."""
    got: dict[int, Record] = {}
    swapped: dict[int, list[_Swap]] = {}
    for record in view.records:
        step = record.step
        if step.kind is Kind.COLLECTIVE:
            yield from (each for swaps in swapped.values() for each in swaps)
            got, swapped = {}, {}
        if step.kind is not Kind.STORE or record.state is not State.ENDED:
            continue
        if step.op in _GETS:
            looks = any(each.got.step.site != step.site for each in swapped.get(step.digest, ()))
            if looks:  # elsewhere than where it gets it for the next
                swapped.pop(step.digest)
            got[step.digest] = record
        elif step.op == SWAP:
            before = got.pop(step.digest, None)
            if before is None or before.thread != record.thread or not _drops_it(before, record):
                continue
            if (swap := _Swap(rank, before, record)).adds:
                swapped.setdefault(step.digest, []).append(swap)
    yield from (each for swaps in swapped.values() for each in swaps)


def _drops_it(got: Record, put: Record) -> bool:
    """Whether the source does nothing with what the swap gives back, does not get the key until it is right, and has
    made what it would put there of what it got, whatever that was.
    """
    site, before = put.step.site, got.step.site
    function = function_around(site) if site is not None else None
    if site is None or function is None or before is None or asks_again(before):
        return False
    key = put.step.target
    if not depends_on(before, site, value=True, key=key) or goes_by(before, site, key=key):
        return False
    swaps = [call for call in calls_at(function, site.line) if name_called(call) == SWAP]
    plain = {id(node.value) for node in ast.walk(function) if isinstance(node, ast.Expr)}
    return len(swaps) == 1 and id(swaps[0]) in plain
