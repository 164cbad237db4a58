"""The steps that a group's calls are: made from their arguments once, and numbered each time."""

from __future__ import annotations

import datetime
from typing import Any

from rankdrill.boundary.callsites import call_site
from rankdrill.boundary.contracts import MOST_KNOWN, Terms, message_terms_of, terms_of
from rankdrill.boundary.messages import Messages
from rankdrill.boundary.numbering import Numbering
from rankdrill.boundary.reducers import Buckets
from rankdrill.boundary.work import NO_TIMEOUT
from rankdrill.step import MESSAGES, NO_SEQUENCE, Kind, Site, Step

__all__ = ["Repertoire", "patience_of"]


class Repertoire:
    """The steps of the group `label`, on its member `place` of so many: the next of each kind has the next number.

    The calls that were made so far are kept without their numbers: loops make the same ones again. `messages` has the
    numbers of messages, `buckets` the lines that DDP's reducer is behind.
    """

    def __init__(self, label: str, place: int, members: int, messages: Messages, buckets: Buckets) -> None:
        self._label = label
        self._place, self._members = place, members
        self._messages = messages
        self._buckets = buckets
        self._sequence = Numbering()
        self._known: dict[tuple[str, int, int], tuple[Step, Terms]] = {}

    @property
    def upcoming(self) -> int:
        """The number of the next collective."""
        return self._sequence.upcoming

    def count_anew(self) -> None:
        """Number collectives from 0 again."""
        self._sequence = Numbering()

    def take(self, op: str, args: dict[str, Any]) -> Step:
        """The step that is `op` with these arguments, called by the caller's caller; takes the next number."""
        site = call_site(2)
        if op in MESSAGES:
            peer, tag = args.get("peer"), args.get("tag", 0)
            terms = message_terms_of(args.get("tensors"))
            told = f"{terms.contract.shown} peer={'any' if peer is None else peer} tag={tag}".lstrip()
            message = self._messages.take(op, peer, tag)
            return self._step(op, terms, site).like(fingerprint=told, message=message)
        terms = terms_of(op, args, self._place, self._members)
        if self._buckets.in_use:
            site = self._buckets.site_of(terms.contract, site, depth=3)
        return self._step(op, terms, site).like(sequence=self._sequence.take())

    def give_back(self, step: Step, args: dict[str, Any]) -> None:
        """Have the next call, or message, take the number of `step`, which is not issued."""
        if step.message is not None:
            self._messages.give_back(step.op, args.get("peer"), step.message)
        elif step.sequence != NO_SEQUENCE:
            self._sequence.give_back(step.sequence)

    def _step(self, op: str, terms: Terms, site: Site | None) -> Step:
        """`op` on these terms at that line, without a number."""
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
            known = self._known[key] = step, terms
        return known[0]


def patience_of(args: dict[str, Any], usual_s: float) -> float:
    """Seconds after which the backend gives up this call: its own timeout, else the group's usual one; 0 if unknown."""
    own = args.get("timeout") or getattr(args.get("opts"), "timeout", None)
    if isinstance(own, int | float):  # C++ takes seconds, too
        own = datetime.timedelta(seconds=own)
    return usual_s if own is None or own <= NO_TIMEOUT else float(own.total_seconds())
