"""Who on the left stands for whom on the right, while two structures are compared."""

from __future__ import annotations

from typing import Any

from rankdrill_strategies.kinds import is_value

__all__ = ["Pairing"]


class Pairing:
    """A one-to-one relation between the objects of two structures, grown as they are walked together.

    That two objects are paired is assumed from the moment they are first met (so that structures which contain
    themselves end), and holds from then on: with `sharing`, an object that was met before has to meet the
    partner it had before. Values, whose identity nobody can rely on, may have several partners.
    """

    def __init__(self, sharing: bool) -> None:
        self._sharing = sharing
        # Objects are held, not only their ids: a temporary's id would be given to another object.
        self._met: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._partners: tuple[dict[int, str], dict[int, str]] = ({}, {})

    def copy(self) -> Pairing:
        """A second one to try an assumption with."""
        twin = Pairing(self._sharing)
        twin._met = dict(self._met)
        twin._partners = dict(self._partners[0]), dict(self._partners[1])
        return twin

    def met(self, left: Any, right: Any) -> bool:
        """Whether these two have been paired, so that what they hold has been or will be compared."""
        return (id(left), id(right)) in self._met

    def pair(self, path: str, left: Any, right: Any) -> str | None:
        """Pair two objects at `path`; says what contradicts it, if anything does."""
        if self._sharing and not is_value(left):
            lefts, rights = self._partners
            before_left, before_right = lefts.get(id(left)), rights.get(id(right))
            if before_left is not None:
                return f"{path}: the object at {before_left} on the left, another object on the right"
            if before_right is not None:
                return f"{path}: the object at {before_right} on the right, another object on the left"
            lefts[id(left)] = rights[id(right)] = path
        self._met[id(left), id(right)] = left, right
        return None
