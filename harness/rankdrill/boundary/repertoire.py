"""The calls that a group knows, as steps."""

from __future__ import annotations

from rankdrill.boundary.contracts import MOST_KNOWN, Terms
from rankdrill.boundary.habits import Habit, Key
from rankdrill.step import Kind, Site, Step

__all__ = ["Repertoire"]


class Repertoire:
    """The calls on one group that were made so far, as steps without their numbers: loops make the same ones again."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._known: dict[tuple[str, int, int], Habit] = {}
        self.by_key: dict[Key, Habit | None] = {}
        """Those by their keys; None where calls of a key are not for the beaten path."""

    def learn(self, key: Key, habit: Habit | None) -> None:
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
