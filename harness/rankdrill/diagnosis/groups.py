"""Process groups told by their members: torch names them by number, which says nothing to who made them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rankdrill.diagnosis.finding import Finding
from rankdrill.diagnosis.waits import name_ranks
from rankdrill.ledger import GROUP_OP, LedgerView, Members
from rankdrill.step import DEFAULT_GROUP, Kind

__all__ = ["by_members", "finding_by_members", "members_in"]

_ON = re.compile(r"\bon '([^']+)'")


def members_in(view: LedgerView) -> dict[str, tuple[int, ...]]:
    """The members of the groups that a rank has used, as far as its ledger says so."""
    told: dict[str, Members] = {}
    found: dict[str, tuple[int, ...]] = {}
    for record in view.where(lambda kind, state: kind is Kind.COLLECTIVE):
        if record.step.op == GROUP_OP:
            ranks = told.setdefault(record.step.target, Members()).take(record.step.fingerprint)
            if ranks is not None:
                found[record.step.target] = ranks
    return found


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
