"""The steps that a group's calls are: made from their arguments once, and numbered each time."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from rankdrill.boundary.callsites import call_site
from rankdrill.boundary.contracts import MOST_KNOWN, Terms, message_terms_of, terms_of
from rankdrill.boundary.habits import Habit, Key
from rankdrill.boundary.work import NO_TIMEOUT
from rankdrill.ledger import milliseconds
from rankdrill.step import MESSAGES, Kind, Site, Step

if TYPE_CHECKING:
    from rankdrill.boundary.collectives import DrilledGroup

__all__ = ["Repertoire", "habit_of", "patience_ms_of", "patience_of", "step_of"]


class Repertoire:
    """The calls on one group that were made so far, as steps without their numbers: loops make the same ones again."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._known: dict[tuple[str, int, int], Habit] = {}
        self.by_key: dict[Key, Habit] = {}

    def learn(self, key: Key, habit: Habit) -> None:
        """Know `habit` by that key from now on."""
        if len(self.by_key) >= MOST_KNOWN:
            self.by_key.clear()
        self.by_key[key] = habit

    def forget(self) -> None:
        """Know no call."""
        self._known.clear()
        self.by_key.clear()

    def habit(self, op: str, terms: Terms, site: Site | None) -> Habit:
        """`op` on these terms at that line."""
        key = op, id(terms), id(site)  # held in their entry, so that nothing else is ever found in their place
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            contract = terms.contract
            step = Step(
                Kind.COLLECTIVE,
                op,
                self._label,
                terms.fingerprint,
                terms.nbytes,
                site=site,
                digest=contract.digest,
                contract=contract,
            )
            known = self._known[key] = Habit(step, terms)
        return known


def step_of(group: DrilledGroup, op: str, args: dict[str, Any]) -> Step:
    """The step that is the collective `op` of `group`; takes the group's next number."""
    site = call_site(2)
    if op in MESSAGES:
        peer, tag = args.get("peer"), args.get("tag", 0)
        terms = message_terms_of(args.get("tensors"))
        told = f"{terms.contract.shown} peer={'any' if peer is None else peer} tag={tag}".lstrip()
        message = group.messages.take(op, peer, tag)
        return group.repertoire.habit(op, terms, site).step.like(fingerprint=told, message=message)
    return habit_of(group, op, args, site, depth=2).step.like(sequence=group.sequence.take())


def habit_of(group: DrilledGroup, op: str, args: dict[str, Any], site: Site | None, depth: int = 1) -> Habit:
    """The collective `op` of `group` as it is made with these arguments at that line, by the caller at `depth`."""
    terms = terms_of(op, args, group.place, group.members)
    if group.buckets.in_use:
        site = group.buckets.site_of(terms.contract, site, depth + 2)
    return group.repertoire.habit(op, terms, site)


def patience_of(group: DrilledGroup, args: dict[str, Any]) -> float:
    """Seconds after which the backend gives up this call: its own timeout, else the group's; 0 if unknown."""
    own = args.get("timeout") or getattr(args.get("opts"), "timeout", None)
    if isinstance(own, int | float):  # C++ takes seconds, too
        own = datetime.timedelta(seconds=own)
    return group.timeout if own is None or own <= NO_TIMEOUT else float(own.total_seconds())


def patience_ms_of(group: DrilledGroup, opts: Any) -> int:
    """The same in whole milliseconds, of a call that has no timeout but in its options."""
    own = getattr(opts, "timeout", None)
    if own is None or (isinstance(own, datetime.timedelta) and own <= NO_TIMEOUT):
        return group.patience_ms
    seconds = patience_of(group, {"opts": opts})
    return milliseconds(seconds) if seconds else 0
