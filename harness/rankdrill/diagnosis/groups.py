"""Process groups told by their members: torch names them by number, which says nothing to who made them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rankdrill.diagnosis.finding import Finding
from rankdrill.diagnosis.waits import name_ranks
from rankdrill.ledger import LedgerView
from rankdrill.step import DEFAULT_GROUP

__all__ = ["by_members", "finding_by_members", "members_in"]

_ON = re.compile(r"\bon '([^']+)'")


def members_in(view: LedgerView) -> dict[str, tuple[int, ...]]:
    """The members of the groups that a rank has used, as far as its ledger says so."""
    return {group.label: group.ranks() for group in view.groups}


def by_members(text: str, views: Iterable[LedgerView]) -> str:
    """`text` with the members of each group where it first speaks of it, as `views` tell them."""
    return _told(text, _named_in(views), set()) if _ON.search(text) else text


def _named_in(views: Iterable[LedgerView]) -> dict[str, tuple[int, ...]]:
    """The members of all groups that `views` tell of but the default group, whose members everybody knows."""
    found = {name: ranks for view in views for name, ranks in members_in(view).items()}
    found.pop(DEFAULT_GROUP, None)
    return found


def _told(text: str, groups: Mapping[str, tuple[int, ...]], told: set[str]) -> str:
    def with_members(match: re.Match[str]) -> str:
        name = match[1]
        if name in told or name not in groups:
            return match[0]
        told.add(name)
        return f"{match[0]} ({name_ranks(groups[name])})"

    return _ON.sub(with_members, text)


def finding_by_members(finding: Finding, views: Iterable[LedgerView]) -> Finding:
    """`finding`, whose sides tell the members of the groups they speak of."""
    groups, told = _named_in(views), set[str]()
    sides = tuple(replace(side, did=_told(side.did, groups, told)) for side in finding.sides)
    return replace(finding, sides=sides)
