"""A key that ranks wait for and nobody sets: who was to set it, or who waits for a wrong one.

A rank is blamed where most of the others did something else: where each sets a key of its own number but one, or of
numbers that follow from its own; where all that wait have counted themselves but one; where one sets them one after the
other and has left this one out; where one alone sets a key that differs in its spelling, and that nobody gets; where
ranks set and await a key like it; where by the source one alone could have set it, and has gone past that line; where
one has deleted it before several others got it; where one has only swapped a value that it never had.
Otherwise nobody can say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.messages import words
from rankdrill.diagnosis.stores.keys import awaits_key, swaps_what_is_there
from rankdrill.diagnosis.stores.other_name import misspelt_by, set_at_their_line, waiting_for_such
from rankdrill.diagnosis.stores.own_keys import whose_own
from rankdrill.diagnosis.stores.setters import Setter, gone_by, only_setter
from rankdrill.diagnosis.stores.spelling import words_of
from rankdrill.diagnosis.stores.uses import Use, alike, number_in, uses_of
from rankdrill.diagnosis.waits import FEW, Wait, name_ranks
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import Kind, Site, Step
from rankdrill.whose import Whose, whose_file

__all__ = ["missing_key"]


def missing_key(beside: Mapping[int, Wait], lost: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding | None:
    """What is wrong where the ranks `beside` wait for keys for ever, and `lost` are all that wait for ever.

    None where they wait for locks alone: whoever holds one has ended.
    """
    by_key: dict[str, list[int]] = {}
    for rank, wait in beside.items():
        if awaits_key(wait.record.step):
            by_key.setdefault(wait.record.step.target, []).append(rank)
    if not by_key:
        return None
    key = min(by_key, key=lambda key: (-len(by_key[key]), min(beside[rank].record.begin_ns for rank in by_key[key])))
    waiters, uses = sorted(by_key[key]), uses_of(views)
    own = whose_own(key, uses, len(views))
    culprits = (own,) if own is not None else _who_did_not(key, waiters, uses, len(views))
    if culprits is None:
        culprits = _who_did_not_count(waiters, beside, uses, len(views)) or _who_left_a_gap(
            key, waiters, uses, len(views)
        )
    if culprits is None:
        culprits = _who_sets_for_each(key, waiters, uses)
    awaited = beside[waiters[0]].record.step
    misspelt = misspelt_by(awaited, waiting_for_such(awaited, beside), uses, views)
    if misspelt is None and culprits and not set(waiters) <= set(culprits):  # of who alone waits, the key is wrong
        misspelt = set_at_their_line(key, culprits[0], uses, views)
    if misspelt is not None and culprits in (None, (misspelt.rank,)):
        culprits = (misspelt.rank,)
        sides = (_set_so(misspelt, key, uses), *_sides(key, waiters, culprits, beside, lost, uses, views)[1:])
        return Finding(FindingKind.MISSING_KEY, f"key {key!r}", "key", sides, culprits)
    if culprits is None:
        culprits = _outvoted(awaited, waiters, uses)
    deleted = None if culprits else _deleted(awaited, waiters, uses, views)
    if deleted is not None:
        rank, record = deleted
        did = f"has deleted {key!r}, which others had still to get"
        others = _sides(key, waiters, (rank,), beside, lost, uses, views)[1:]
        sides = (side_of([rank], did, [record.step.site]), *others)
        return Finding(FindingKind.MISSING_KEY, f"key {key!r}", "key", sides, (rank,))
    swapped = None if culprits else _swapped(awaited, waiters, uses, views)
    if swapped is not None:
        rank, record = swapped
        sides = (_swap(rank, record), *_sides(key, waiters, (rank,), beside, lost, uses, views)[1:])
        return Finding(FindingKind.MISSING_KEY, f"key {key!r}", "key", sides, (rank,))
    setter = None if culprits else _setter_gone_by(key, waiters, lost, views)
    if setter is not None:
        culprits = (setter.rank,)
        others = _sides(key, waiters, culprits, beside, lost, uses, views)[1:]
        return Finding(FindingKind.MISSING_KEY, f"key {key!r}", "key", (_gone_by(setter, key, lost), *others), culprits)
    sides = _sides(key, waiters, culprits, beside, lost, uses, views)
    return Finding(FindingKind.MISSING_KEY, f"key {key!r}", "key", sides, culprits)


def _who_did_not(key: str, waiters: Sequence[int], uses: Sequence[Use], size: int) -> tuple[int, ...] | None:
    """Where ranks set keys of their own numbers: who has not, or who wants one of a rank that there is not.

    Keys may have several numbers, such as that of the round: each may be the rank's, if one alone is.
    """
    rows = _rows(key, [use for use in uses if use.sets])
    found = [_who_has_not(wanted, setters, waiters, size) for wanted, setters in rows]
    told = [ranks for ranks in found if ranks is not None]
    return told[0] if len(told) == 1 else None


def _who_has_not(
    wanted: int, setters: Mapping[int, set[int]], waiters: Sequence[int], size: int
) -> tuple[int, ...] | None:
    """Those whose number is missing among the `setters`, which have each set that of their own."""
    if len(setters) < 2 or any(ranks != {number} for number, ranks in setters.items()):
        return None
    without = tuple(rank for rank in range(size) if rank not in setters)
    if wanted in without:
        return without if len(without) < len(setters) else None
    if wanted >= size and {*without} <= {*waiters}:  # who collects them sets none
        return tuple(waiters) if 2 * len(waiters) <= size else ()
    return None


def _who_left_a_gap(key: str, waiters: Sequence[int], uses: Sequence[Use], size: int) -> tuple[int, ...] | None:
    """The one rank that sets all such keys, one number after the other, and has gone on without this one.

    So it has, too, if all wait for the next one, itself among them.
    """
    found = set()
    for wanted, setters in _rows(key, [use for use in uses if use.sets]):
        ranks = frozenset().union(*setters.values())
        gone_on = max(setters) > wanted and ranks.isdisjoint(waiters)
        waits, next_ = len(waiters) == size, len(setters) > 1 and max(setters) == wanted - 1
        if len(ranks) == 1 and wanted - 1 in setters and (gone_on or (waits and next_)):
            found.add(ranks)
    return tuple(found.pop()) if len(found) == 1 else None


def _who_sets_for_each(key: str, waiters: Sequence[int], uses: Sequence[Use]) -> tuple[int, ...] | None:
    """Where each gets a key of its own number, and so does the one that waits: who has set them for all others."""
    got, was_set = ([use for use in uses if use.sets is sets] for sets in (False, True))
    own = [
        wanted
        for wanted, getters in _rows(key, got)
        if [wanted] == list(waiters) and all(ranks == {number} for number, ranks in getters.items())
    ]
    if not own:
        return None
    setters = [row for wanted, row in _rows(key, was_set) if wanted in own and len(row) > 1]
    ranks = {rank for row in setters for those in row.values() for rank in those}
    return tuple(ranks) if len(ranks) == 1 and ranks.isdisjoint(waiters) else ()


def _rows(key: str, uses: Sequence[Use]) -> Iterator[tuple[int, dict[int, set[int]]]]:
    """For each number in `key`: that number, and by which ranks keys were used that have another one there alone."""
    rows: dict[int, tuple[int, dict[int, set[int]]]] = {}
    for use in uses:
        differs = number_in(key, use.key)
        if differs is not None:
            place, wanted, number = differs
            rows.setdefault(place, (wanted, {}))[1].setdefault(number, set()).add(use.rank)
    yield from rows.values()


def _who_did_not_count(
    waiters: Sequence[int], beside: Mapping[int, Wait], uses: Sequence[Use], size: int
) -> tuple[int, ...] | None:
    """Where each that waits has added to one counter before: those that have not, if they are fewer."""
    added: dict[int, Use] = {}
    for use in uses:
        if use.rank in waiters and use.sets and use.record.index < beside[use.rank].record.index:
            added[use.rank] = use
    counters = {use.record.step.digest for use in added.values() if use.record.step.op == "add"}
    if len(added) < len(waiters) or len(counters) != 1 or any(use.record.step.op != "add" for use in added.values()):
        return None
    came = {use.rank for use in uses if use.record.step.op == "add" and use.record.step.digest in counters}
    without = tuple(rank for rank in range(size) if rank not in came)
    return without if without and came == set(waiters) and len(without) < len(came) else None


def _deleted(
    awaited: Step, waiters: Sequence[int], uses: Sequence[Use], views: Sequence[LedgerView]
) -> tuple[int, Record] | None:
    """Who has deleted the key that was there, and where, if it is one rank, and several wait that never got it."""
    of_key = [use for use in uses if use.record.step.digest == awaited.digest]
    deleted = [(rank, record) for rank, view in enumerate(views) for record in _deletions(awaited.digest, view)]
    setters = {use.rank for use in of_key if use.sets}
    if len(deleted) != 1 or not setters:
        return None
    rank, _record = deleted[0]
    if len(waiters) < 2 and setters != {rank}:  # one that is late itself, of what is nobody's own
        return None
    got_before = any(use.rank in waiters for use in of_key)
    return deleted[0] if rank not in waiters and not got_before else None


def _swapped(
    awaited: Step, waiters: Sequence[int], uses: Sequence[Use], views: Sequence[LedgerView]
) -> tuple[int, Record] | None:
    """Who has called `compare_set` on the key for a value that it never had, if that is one rank, and nobody set it."""
    if any(use.sets and use.record.step.digest == awaited.digest for use in uses):
        return None
    swaps = {
        rank: record
        for rank, view in enumerate(views)
        for record in view.where(lambda kind, state: kind is Kind.STORE and state is State.ENDED)
        if record.step.digest == awaited.digest and swaps_what_is_there(record.step)
    }
    alone = len(swaps) == 1 and swaps.keys().isdisjoint(waiters)
    return next(iter(swaps.items())) if alone else None


def _outvoted(awaited: Step, waiters: Sequence[int], uses: Sequence[Use]) -> tuple[int, ...]:
    """Those that wait, where others set and await a key like theirs; the one that sets such, where several wait."""
    others = [use for use in uses if use.rank not in waiters]
    alike_to_it = {use.key for use in others if alike(awaited, use)}
    set_so = {words_of(use.key) for use in others if use.sets and use.key in alike_to_it}
    # And those that are got like the one that was set for who waits.
    like = [use for use in others if use.key in alike_to_it or words_of(use.key) in set_so]
    users, setters = {use.rank for use in like}, {use.rank for use in like if use.sets}
    agree = any(_is_awaited_by_another(use, like) for use in like if use.sets)
    if agree and len(waiters) < len(users):
        return tuple(waiters)
    if len(waiters) > 1 and len(setters) == 1 and users == setters:
        return tuple(setters)
    return ()


def _setter_gone_by(
    key: str, waiters: Sequence[int], lost: Mapping[int, Wait], views: Sequence[LedgerView]
) -> Setter | None:
    """The one line that sets the key, which one rank alone could have come to, if that has not, and will not any more.

    Nobody can say where another rank has got along without the key.
    """
    ended = {rank for rank in range(len(views)) if rank not in lost}
    sites = {site for view in views for site in _sites_in(view)}
    setter = only_setter(key, sites, len(views))
    if setter is None or setter.rank in waiters or not ended <= {setter.rank}:
        return None
    if any(view.dropped for view in views) or setter.site.place in {site.place for site in sites}:
        return None
    wait = lost.get(setter.rank)
    return setter if wait is None or gone_by(setter, wait.record.step.site) else None


def _sites_in(view: LedgerView) -> Iterator[Site]:
    for site in {id(record.step.site): record.step.site for record in view.records}.values():
        outer = site
        while outer is not None:
            if whose_file(outer.file) is Whose.USER:
                yield outer
            outer = outer.caller


def _is_awaited_by_another(set_: Use, uses: Sequence[Use]) -> bool:
    digest = set_.record.step.digest
    return any(use.rank != set_.rank and use.record.step.digest == digest and not use.sets for use in uses)


# --------------------------------------------------------------------------------------------- in words


def _sides(
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
    sides = [_silent(rank, key, known, lost, views[rank], uses) for rank in silent]
    own = [rank for rank in waiters if rank in culprits]
    for ranks in (own, [rank for rank in waiters if rank not in own]):
        if ranks:
            itself = ranks is own and len(own) < len(waiters)
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
        usual = before.get(ranks[0])
        as_before = (
            f" as {usual.key!r} before{usual.record.step.where}" if usual is not None and len(ranks) == 1 else ""
        )
        return side_of(ranks, f"{has} not set {key!r}{as_before}, and {waits} for it", sites)
    digest = beside[ranks[0]].record.step.digest
    deleted = [rank for rank, view in enumerate(views) if any(_deletions(digest, view))]
    was_set = [use.rank for use in uses if use.sets and use.record.step.digest == digest]
    gone = f"rank {deleted[0]} has deleted" if deleted and was_set else "nobody has set"
    if any(rank in ranks for rank in was_set) and not deleted:
        gone = "is not there"
    return side_of(ranks, f"{'waits' if len(ranks) == 1 else 'wait'} for the key {key!r}, which {gone}", sites)


def _deletions(digest: int, view: LedgerView) -> Iterator[Record]:
    for record in view.where(lambda kind, state: kind is Kind.STORE and state is State.ENDED):
        if record.step.op == "delete_key" and record.step.digest == digest:
            yield record


def _set_so(use: Use, key: str, uses: Sequence[Use]) -> Side:
    step = use.record.step
    others = sorted({each.rank for each in uses if each.sets and each.record.step.digest == step.digest} - {use.rank})
    whose = f"as {name_ranks(others)} did" if others else "which nobody gets"
    return side_of([use.rank], f"has set {use.key!r}, {whose}, and not {key!r}", [step.site])


def _swap(rank: int, record: Record) -> Side:
    expected = record.step.fingerprint.partition(" to ")[0]
    did = f"has set {record.step.target!r} only if it is {expected}, and it was not there"
    return side_of([rank], did, [record.step.site])


def _gone_by(setter: Setter, key: str, lost: Mapping[int, Wait]) -> Side:
    wait = lost.get(setter.rank)
    where = "returned" if wait is None else words.waits(wait.record)
    did = f"{where} without having set {key!r} by the only line that does, which no other rank can come to"
    return side_of([setter.rank], did, [setter.site])


def _silent(
    rank: int, key: str, known: Mapping[int, Use], lost: Mapping[int, Wait], view: LedgerView, uses: Sequence[Use]
) -> Side:
    """A rank that was to set the key, and is somewhere else; one that was nowhere yet, where others set theirs."""
    elsewhere = _elsewhere(rank, lost, view)
    if rank in known:
        set_ = known[rank].record.step
        where = f"{set_.where}," if set_.site not in elsewhere.sites else ""
        did = f"has set {known[rank].key!r}{where} and not {key!r}, and {elsewhere.did}"
        return Side((rank,), did, elsewhere.sites)
    there = [use.record for use in known.values()] or [use.record for use in uses if use.record.step.op == "add"]
    if elsewhere.sites[0] is None and there:
        act = "set" if known else there[0].step.op
        did = f"has not set {key!r}, and {elsewhere.did} without having come to where others {act} one"
        return side_of([rank], did, [there[0].step.site])
    return Side((rank,), f"has not set {key!r}{_as_others_did(known.values())}, and {elsewhere.did}", elsewhere.sites)


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
