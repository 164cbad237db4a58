"""An outcome as JSON: what a reader of the report is told, as fields. `docs/json.md` gives the format."""

from __future__ import annotations

import json
from signal import Signals
from typing import TYPE_CHECKING, Any

from rankdrill.diagnosis.as_json import site_as_fields
from rankdrill.errors import RemoteError
from rankdrill.worlds.dumps import innermost_site
from rankdrill.worlds.rank_outcome import RankOutcome, RenderedError

if TYPE_CHECKING:
    from rankdrill.ledger import Record
    from rankdrill.worlds.death import Death

__all__ = ["FORMAT", "VERSION", "document_of", "rank_as_fields"]

FORMAT = "rankdrill outcome"
VERSION = 1
"""Rises when a field is taken away or means something else; fields may be added to any version."""


def document_of(fields: dict[str, Any]) -> str:
    """See `Outcome.to_json`."""
    return json.dumps({"format": FORMAT, "version": VERSION, **fields}, indent=1, ensure_ascii=False)


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
    return {"type": kind, "message": message, "site": site_as_fields(rank.site)}


def _died(death: Death) -> dict[str, Any]:
    return {
        "signal": None if death.signal is None else _name(death.signal),
        "code": death.code,
        "how": death.how or None,
        "site": site_as_fields(death.site),
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
        "innermost": site_as_fields(innermost_site(rank.stack, current=False, callers=True)),
        "doing": rank.doing or None,
        "processor_s": None if rank.ran is None else round(rank.ran.had_s, 2),
        "since_last_step_s": None if rank.ran is None else round(rank.ran.of_s, 2),
        "kernel": list(rank.kernel),
    }


def _step(record: Record | None) -> dict[str, Any] | None:
    return None if record is None else {"step": str(record.step), "site": site_as_fields(record.step.site)}
