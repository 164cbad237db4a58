"""An outcome as JSON: what a reader of the report is told, as fields. `docs/json.md` gives the format."""

from __future__ import annotations

import json
from signal import Signals
from typing import TYPE_CHECKING, Any

from rankdrill.errors import RemoteError
from rankdrill.worlds.dumps import innermost_site
from rankdrill.worlds.rank_outcome import RankOutcome, RenderedError

if TYPE_CHECKING:
    from rankdrill.diagnosis import Finding
    from rankdrill.ledger import Record
    from rankdrill.step import Site
    from rankdrill.worlds.death import Death

__all__ = ["FORMAT", "VERSION", "document_of", "finding_as_fields", "rank_as_fields"]

FORMAT = "rankdrill outcome"
VERSION = 1
"""Rises when a field is taken away or means something else; fields may be added to any version."""


def document_of(fields: dict[str, Any]) -> str:
    """See `Outcome.to_json`."""
    return json.dumps({"format": FORMAT, "version": VERSION, **fields}, indent=1, ensure_ascii=False)


def finding_as_fields(finding: Finding) -> dict[str, Any]:
    """A finding: what kind, who, and what each side did."""
    return {
        "kind": str(finding.kind),
        "culprits": list(finding.culprits),
        "step": finding.step,
        "argument": finding.argument,
        "sides": [
            {"ranks": list(side.ranks), "did": side.did, "sites": [_site(site) for site in side.sites]}
            for side in finding.sides
        ],
    }


def rank_as_fields(rank: RankOutcome, told: str) -> dict[str, Any]:
    """One rank's part; `told` says in one line what it did."""
    status = str(rank.status)
    return {
        "rank": rank.rank,
        "status": status,
        "told": told,
        "by_plan": rank.by_plan,
        "raised": _raised(rank) if status == "raised" else None,
        "died": _died(rank.death) if rank.death is not None and status == "died" else None,
        "stuck": _stuck(rank) if status == "stuck" else None,
        "last_call": _step(rank.last_call),
    }


def _raised(rank: RankOutcome) -> dict[str, Any]:
    match rank.error:
        case RemoteError() as error:
            kind, message = error.type_name, str(error.args[1])
        case RenderedError() as error:  # which cannot be had here
            kind, _, message = error.crash.partition(": ")
        case error:
            kind, message = type(error).__qualname__, str(error)
    return {"type": kind, "message": message, "site": _site(rank.site)}


def _died(death: Death) -> dict[str, Any]:
    return {
        "signal": None if death.signal is None else _name(death.signal),
        "code": death.code,
        "how": death.how or None,
        "site": _site(death.site),
    }


def _name(signum: int) -> str:
    try:
        return Signals(signum).name
    except ValueError:
        return str(signum)


def _stuck(rank: RankOutcome) -> dict[str, Any]:
    return {
        "in": _step(rank.step),
        "waits_for": list(rank.wait.missing) if rank.wait is not None else [],
        "innermost": _site(innermost_site(rank.stack, current=False)),
    }


def _step(record: Record | None) -> dict[str, Any] | None:
    return None if record is None else {"step": str(record.step), "site": _site(record.step.site)}


def _site(site: Site | None) -> dict[str, Any] | None:
    if site is None:
        return None
    return {
        "file": site.path,
        "line": site.line,
        "function": site.function,
        "via": site.via or None,
        "called_from": _site(site.caller),
    }
