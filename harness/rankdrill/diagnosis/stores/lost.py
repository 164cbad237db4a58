"""Lost updates: ranks get a key, and set it to what follows from that, each without what another did to it meanwhile.

Of two that get and set it is told where it has happened: both had got the key before either set it, and whoever set it
last has wiped out what the other did. What a lock, a barrier, a message or a turn keeps apart never lies so. Of ranks
that did the same from the same lines, and were lucky, it is told with them: nothing orders them either.

Where all were lucky it is told too if nothing can have ordered two of them: both come from one collective, have seen
nothing of others since, and change the key whatever they got. Who goes by what it got may know its turn by that; and
who calls what nobody knows may wait there.

Of one that gets and sets where others add it is told also where nothing can have ordered the two since the last
collective, unless the rank asks again and again: it may wait for what the others add. Where others swap it by
`compare_set`, it is told where it has happened.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.stores.changes import SWAP, Change, changes_of
from rankdrill.diagnosis.stores.flow import counts_up, depends_on, goes_by
from rankdrill.diagnosis.stores.quiet import quiet_between
from rankdrill.diagnosis.stores.source import asks_again
from rankdrill.ledger import LedgerView

__all__ = ["lost_update"]

_STAGE = re.compile(r"epoch|generation|iteration|phase|round|stage|step|turn|version", re.IGNORECASE)


def lost_update(views: Mapping[int, LedgerView]) -> Finding | None:
    """The updates of one key that were lost, by ranks whose ledgers are `views`; None where none were."""
    by_key: dict[int, list[Change]] = {}
    for rank, view in views.items():
        for change in changes_of(rank, view):
            by_key.setdefault(change.put.step.digest, []).append(change)
    return next((found for changes in by_key.values() if (found := _lost_of(changes)) is not None), None)


def _lost_of(changes: Sequence[Change]) -> Finding | None:
    updates = [change for change in changes if change.got is not None and _follows(change)]
    added = [change for change in changes if change.got is None and not _tried_again(change, changes)]
    lost = [one for one in updates if any(one.rank != other.rank and _lose(one, other) for other in updates)]
    beside = [one for one in updates if any(one.rank != other.rank and _loses(one, other) for other in added)]
    if not lost and not beside:
        return None
    alike = {(one.lines, one.epoch) for one in lost or beside}
    those = {one.rank: one for one in reversed(updates) if (one.lines, one.epoch) in alike}
    those, holders = _without_the_lock(those)
    undone = any(one.rank != other.rank and one.over(other) for one in lost or beside for other in changes)
    others = [*_holding(holders), *_adding(added, those)]
    key, sides = (lost or beside)[0].put.step.target, (*_sides(those, undone=undone), *others)
    return Finding(FindingKind.LOST_UPDATE, f"key {key!r}", "value", sides, tuple(sorted(those)))


def _tried_again(swap: Change, changes: Sequence[Change]) -> bool:
    """Whether its rank swapped the key once more before it went on: then it had not been what it took it for."""
    later = (one for one in changes if one.rank == swap.rank and one.epoch == swap.epoch and one.put.step.op == SWAP)
    return swap.put.step.op == SWAP and any(one.put.index > swap.put.index for one in later)


def _without_the_lock(those: Mapping[int, Change]) -> tuple[dict[int, Change], dict[int, Change]]:
    """Those that have changed the key without what the others take first, if that is one key, and the others."""
    free = {rank: change for rank, change in those.items() if change.under is None}
    holding = {rank: change for rank, change in those.items() if change.under is not None}
    one = len({change.under.step.digest for change in holding.values() if change.under is not None}) == 1
    return (free, holding) if free and one else (dict(those), {})


def _lose(one: Change, other: Change) -> bool:
    """Whether of two updates one is lost, or may be: who sets the same once more has lost something if both count.

    Those that have met between the two may all count a stage on, each to the same: what is called so is no sum.
    """
    if not (one.meets(other) or _unordered(one, other)):
        return False
    if one.put.step.fingerprint != other.put.step.fingerprint:
        return True
    together = (one.met or other.met) and _STAGE.search(one.put.step.target) is not None
    return not together and _counts(one) and _counts(other)


def _unordered(one: Change, other: Change) -> bool:
    return one.epoch == other.epoch and _is_by_itself(one) and _is_by_itself(other)


def _is_by_itself(update: Change) -> bool:
    """Whether nothing since the last collective told the rank when it may change the key."""
    got, put = update.lines
    if not update.unseeing or got is None or put is None or update.after is None:
        return False
    if not quiet_between(update.after, got, put):
        return False
    key = update.put.step.target
    by_value = depends_on(got, put, value=True, key=key) and not goes_by(got, put, key=key)
    return by_value and not asks_again(got)


def _counts(update: Change) -> bool:
    got, put = update.lines
    return got is not None and put is not None and counts_up(got, put, key=update.put.step.target)


def _loses(update: Change, added: Change) -> bool:
    if update.met:  # and may have heard there what was added: who counts on has not
        return update.over(added) and _counts(update)
    if update.over(added):
        return True
    if not (update.free and added.free and update.epoch == added.epoch):
        return False
    got, put = update.lines
    if got is None or put is None or asks_again(got):
        return False
    return depends_on(got, put, value=True, key=update.put.step.target)


def _follows(update: Change) -> bool:
    got, put = update.lines
    return got is not None and put is not None and depends_on(got, put, key=update.put.step.target)


# --------------------------------------------------------------------------------------------- in words


def _sides(those: Mapping[int, Change], *, undone: bool) -> list[Side]:
    alike: dict[object, list[int]] = {}
    for rank in sorted(those):
        alike.setdefault(those[rank].lines, []).append(rank)
    return [_side(ranks, those, undone=undone) for ranks in alike.values()]


def _side(ranks: Sequence[int], those: Mapping[int, Change], *, undone: bool) -> Side:
    first = those[ranks[0]]
    assert first.got is not None
    s = "s" if len(ranks) == 1 else ""
    key, got = first.put.step.target, first.got.step
    undoing = "undoing what others did to it" if undone else "which undoes what others may do to it"
    gets = f"add{s} 0 to" if got.op == "add" else f"{got.op}{s}"
    did = f"{gets} {key!r} at {got.site} and then set{s} it, {undoing} between the two"
    return side_of(ranks, did, [those[rank].put.step.site for rank in ranks])


def _holding(holders: Mapping[int, Change]) -> list[Side]:
    if not holders:
        return []
    lock = next(change.under.step.target for change in holders.values() if change.under is not None)
    did = f"{'does' if len(holders) == 1 else 'do'} so after {lock!r} only"
    return [side_of(list(holders), did, [change.put.step.site for change in holders.values()])]


def _adding(added: Sequence[Change], those: Mapping[int, Change]) -> list[Side]:
    """The others, which change the key in one call."""
    alike: dict[str, dict[int, Change]] = {}
    for change in reversed(added):
        if change.rank not in those:
            alike.setdefault(change.put.step.op, {})[change.rank] = change
    return [
        side_of(
            list(by_rank),
            _in_one_call(op, "s" if len(by_rank) == 1 else ""),
            [change.put.step.site for change in by_rank.values()],
        )
        for op, by_rank in alike.items()
    ]


def _in_one_call(op: str, s: str) -> str:
    return f"change{s} it by compare_set" if op == SWAP else f"{op}{s} to it in one call"
