"""An outcome as JSON: what a reader of the report is told, as fields. `docs/json.md` gives the format."""

from __future__ import annotations

import json
from signal import Signals
from typing import TYPE_CHECKING, Any

from rankdrill.errors import RemoteError
from rankdrill.worlds.dumps import innermost_site
from rankdrill.worlds.outcome import RankOutcome, RenderedError

if TYPE_CHECKING:
    from rankdrill.diagnosis import Finding
    from rankdrill.ledger import Record
    from rankdrill.step import Site
    from rankdrill.worlds.outcome import Death, Outcome

__all__ = ["FORMAT", "VERSION", "outcome_as_fields", "outcome_to_json"]

FORMAT = "rankdrill outcome"
VERSION = 1
"""Rises when a field is taken away or means something else; fields may be added to any version."""


def outcome_to_json(outcome: Outcome) -> str:
    """See `Outcome.to_json`."""
    document = {"format": FORMAT, "version": VERSION, **outcome_as_fields(outcome)}
    return json.dumps(document, indent=1, ensure_ascii=False)


def outcome_as_fields(outcome: Outcome) -> dict[str, Any]:
    """All of `outcome` that machines read, as what JSON has."""
    return {
        "verdict": str(outcome.verdict),
        "ok": outcome.ok,
        "summary": outcome.summary(),
        "world_size": len(outcome.ranks),
        "elapsed_s": round(outcome.elapsed, 4),
        "culprits": list(outcome.culprits),
        "victims": list(outcome.victims),
        "harness": outcome.harness or None,
        "findings": [_finding(finding) for finding in outcome.findings],
        "ranks": [_rank(rank, _told(rank, outcome)) for rank in outcome.ranks],
        "unfired": list(outcome.unfired),
    }


def _finding(finding: Finding) -> dict[str, Any]:
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


def _told(rank: RankOutcome, outcome: Outcome) -> str:
    """What it did, in one line; what is in a finding has been told there."""
    found = any(rank.rank in finding.ranks for finding in outcome.findings)
    return str(rank) if found or rank.rank not in outcome.culprits else outcome.describe(rank.rank)


def _rank(rank: RankOutcome, told: str) -> dict[str, Any]:
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
