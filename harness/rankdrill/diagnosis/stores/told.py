"""A key that nobody sets, in words: who did not set it, who waits for it, and who has set one like it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from rankdrill.diagnosis.finding import Side, side_of
from rankdrill.diagnosis.messages import words
from rankdrill.diagnosis.stores.keys import awaits_key
from rankdrill.diagnosis.stores.setters import Setter
from rankdrill.diagnosis.stores.undone import deletions
from rankdrill.diagnosis.stores.uses import Use, alike, number_in
from rankdrill.diagnosis.waits import FEW, Wait, name_ranks
from rankdrill.ledger import LedgerView, Record
from rankdrill.step import Site, Step

__all__ = ["gone_by_side", "passed_side", "set_so", "sides_of", "swap_side"]


def sides_of(
    key: str,
    waiters: Sequence[int],
    culprits: tuple[int, ...],
    beside: Mapping[int, Wait],
    lost: Mapping[int, Wait],
    uses: Sequence[Use],
    views: Sequence[LedgerView],
) -> tuple[Side, ...]:
    silent = [rank for rank in culprits if rank not in waiters]
    known = _known(beside[waiters[0]].record.step, uses)
    counter = _counter_of([rank for rank in waiters if rank not in culprits], uses)
    uncounted = {rank: _has_not_counted(rank, counter, uses) for rank in culprits}
    sides = [_silent(rank, key, known, lost, views[rank], uses, uncounted[rank]) for rank in silent]
    own = [rank for rank in waiters if rank in culprits]
    for ranks in (own, [rank for rank in waiters if rank not in own]):
        if ranks:
            itself = ranks is own and len(own) < len(waiters)
            if itself and uncounted[ranks[0]]:
                sides.append(_uncounted(ranks, key, beside, uncounted[ranks[0]]))
            else:
                sides.append(_waiting(ranks, key, beside, views, uses, itself=itself, before=known))
    told = {rank for side in sides for rank in side.ranks}
    sides += _setters({rank: use for rank, use in known.items() if rank not in told}, key)
    if not known and not culprits:
        sides += [_elsewhere(rank, lost, views[rank]) for rank in range(len(views)) if rank not in told]
    return tuple(sides)


def _setters(known: Mapping[int, Use], key: str) -> Iterator[Side]:
    """Who has set keys like the one that is missing; of many those from one line together."""
    by_line: dict[object, list[int]] = {}
    for rank, use in known.items():
        by_line.setdefault((use.record.step.site, use.key == key) if len(known) > FEW else rank, []).append(rank)
    for ranks in by_line.values():
        use = known[ranks[0]]
        more = f", and {len(ranks) - 1} others like it" if len(ranks) > 1 else ""
        elsewhere = " in another store" if use.key == key else ""
        yield side_of(ranks, f"set {use.key!r}{more}{elsewhere}", [use.record.step.site] * len(ranks))


def _known(awaited: Step, uses: Sequence[Use]) -> dict[int, Use]:
    """Of each rank that has set a key like the one that is `awaited` the most like one, of several the last."""
    found: dict[int, Use] = {}
    for use in uses:
        likeness = alike(awaited, use) if use.sets else 0.0
        if likeness and (use.rank not in found or likeness >= alike(awaited, found[use.rank])):
            found[use.rank] = use
    return found


def _waiting(
    ranks: Sequence[int],
    key: str,
    beside: Mapping[int, Wait],
    views: Sequence[LedgerView],
    uses: Sequence[Use],
    *,
    itself: bool,
    before: Mapping[int, Use],
) -> Side:
    sites: list[Site | None] = [beside[rank].record.step.site for rank in ranks]
    if itself:  # as those do that it should set it for
        has, waits = ("has", "waits") if len(ranks) == 1 else ("have", "wait")
        usual = _set_there_before(ranks[0], key, before)
        as_before = (
            f" as {usual.key!r} before{usual.record.step.where}"
            if usual is not None and len(ranks) == 1
            else _as_others_did([use for rank, use in before.items() if rank not in ranks])
        )
        return side_of(ranks, f"{has} not set {key!r}{as_before}, and {waits} for it", sites)
    digest = beside[ranks[0]].record.step.digest
    deleted = [rank for rank, view in enumerate(views) if any(deletions(digest, view))]
    was_set = [use.rank for use in uses if use.sets and use.record.step.digest == digest]
    gone = f"rank {deleted[0]} has deleted" if deleted and was_set else "nobody has set"
    if any(rank in ranks for rank in was_set) and not deleted:
        gone = "is not there"
    return side_of(ranks, f"{'waits' if len(ranks) == 1 else 'wait'} for the key {key!r}, which {gone}", sites)


def _set_there_before(rank: int, key: str, before: Mapping[int, Use]) -> Use | None:
    """What it has set like `key` before; not if others have set theirs of its kind at another line."""
    usual = before.get(rank)
    others = {use.record.step.site for other, use in before.items() if other != rank and number_in(key, use.key)}
    return None if len(others) == 1 and usual is not None and usual.record.step.site not in others else usual


def _uncounted(ranks: Sequence[int], key: str, beside: Mapping[int, Wait], uncounted: str) -> Side:
    has, waits = ("has", "waits") if len(ranks) == 1 else ("have", "wait")
    did = f"{has} not {uncounted.removeprefix(' nor ')}, and {waits} for the key {key!r}"
    return side_of(ranks, did, [beside[rank].record.step.site for rank in ranks])


def set_so(use: Use, key: str, uses: Sequence[Use]) -> Side:
    step = use.record.step
    such = [each.rank for each in uses if each.sets and each.record.step.digest == step.digest]
    others = sorted(set(such) - {use.rank})
    once = "once more" if such.count(use.rank) > 1 else "which nobody gets"
    whose = f"as {name_ranks(others)} did" if others else once
    return side_of([use.rank], f"has set {use.key!r}, {whose}, and not {key!r}", [step.site])


def swap_side(rank: int, record: Record) -> Side:
    expected = record.step.fingerprint.partition(" to ")[0]
    did = f"has set {record.step.target!r} only if it is {expected}, and it was not there"
    return side_of([rank], did, [record.step.site])


def gone_by_side(setter: Setter, key: str, lost: Mapping[int, Wait]) -> Side:
    wait = lost.get(setter.rank)
    where = "returned" if wait is None else words.waits(wait.record)
    there = "where each sets its own" if setter.own else "by the only line that does, which no other rank can come to"
    did = f"{where} without having set {key!r} {there}"
    return side_of([setter.rank], did, [setter.site])


def passed_side(rank: int, before: Record, key: str, wait: Wait) -> Side:
    did = f"has set {before.step.target!r} there the time before, and not {key!r}, and {words.waits(wait.record)}"
    return side_of([rank], did, [before.step.site])


def _silent(
    rank: int,
    key: str,
    known: Mapping[int, Use],
    lost: Mapping[int, Wait],
    view: LedgerView,
    uses: Sequence[Use],
    uncounted: str,
) -> Side:
    """A rank that was to set the key, and is somewhere else; one that was nowhere yet, where others set theirs."""
    elsewhere = _elsewhere(rank, lost, view)
    if rank in known:
        set_ = known[rank].record.step
        where = f"{set_.where}," if set_.site not in elsewhere.sites else ""
        did = f"has set {known[rank].key!r}{where} and not {key!r}{uncounted}, and {elsewhere.did}"
        return Side((rank,), did, elsewhere.sites)
    there = [use.record for use in known.values()] or [use.record for use in uses if use.record.step.op == "add"]
    if elsewhere.sites[0] is None and there:
        act = "set" if known else there[0].step.op
        did = f"has not set {key!r}, and {elsewhere.did} without having come to where others {act} one"
        return side_of([rank], did, [there[0].step.site])
    did = f"has not set {key!r}{uncounted or _as_others_did(known.values())}, and {elsewhere.did}"
    return Side((rank,), did, elsewhere.sites)


def _counter_of(waiters: Sequence[int], uses: Sequence[Use]) -> Step | None:
    """What all that wait have added to last, of all that they have set: so they counted themselves."""
    newest = {use.rank: use.record.step for use in uses if use.sets and use.rank in waiters}
    (first, *_) = newest.values() or (None,)
    alike = all(step.op == "add" and first is not None and step.digest == first.digest for step in newest.values())
    return first if alike and len(newest) == len(waiters) else None


def _has_not_counted(rank: int, counter: Step | None, uses: Sequence[Use]) -> str:
    """That this rank has not added to it, at the line at which the others have."""
    if counter is None or any(use.rank == rank and use.record.step.digest == counter.digest for use in uses):
        return ""
    return f" nor added to {counter.target!r} as others have{counter.where}"


def _as_others_did(uses: Collection[Use]) -> str:
    """From which line others have set theirs, if it is one."""
    sites = {use.record.step.site for use in uses}
    (site,) = sites if len(sites) == 1 else (None,)
    return f" as others have theirs, at {site}" if site is not None else ""


def _elsewhere(rank: int, lost: Mapping[int, Wait], view: LedgerView) -> Side:
    wait = lost.get(rank)
    if wait is not None:
        step = wait.record.step
        told = f"waits for the key {step.target!r}" if awaits_key(step) else words.waits(wait.record)
        return side_of([rank], told, [step.site])
    last = next((record for record in reversed(view.records) if record.step.site is not None), None)
    after = f" after {last.step.name}" if last is not None else ""
    return side_of([rank], f"returned{after}", [last.step.site if last is not None else None])
