"""Findings and call sites as fields; `docs/json.md` says what each is."""

from __future__ import annotations

from typing import Any

from rankdrill.diagnosis.confidence import confidence_in, confirmed_by
from rankdrill.diagnosis.finding import Finding
from rankdrill.step import NO_SEQUENCE, Site

__all__ = ["finding_as_fields", "site_as_fields", "sureness_as_fields"]


def finding_as_fields(finding: Finding) -> dict[str, Any]:
    """A finding: what kind, who, and what each side did."""
    return {
        "kind": str(finding.kind),
        "culprits": list(finding.culprits),
        "step": finding.step,
        "group": finding.group or None,
        "number": None if finding.number == NO_SEQUENCE else finding.number,
        "argument": finding.argument,
        "sides": [
            {
                "ranks": list(side.ranks),
                "did": side.did,
                "sites": [site_as_fields(site) for site in side.sites],
                "ahead": site_as_fields(side.ahead),
                "within": [site_as_fields(site) for site in side.within],
            }
            for side in finding.sides
        ],
    }


def sureness_as_fields(finding: Finding) -> dict[str, Any]:
    """How sure a finding of a run is, of which all is known; of recordings that depends on what was left of them."""
    return {"confidence": str(confidence_in(finding)), "confirmed_by": confirmed_by(finding)}


def site_as_fields(site: Site | None) -> dict[str, Any] | None:
    """A line, and those that called its function; None where it is not known."""
    if site is None:
        return None
    return {
        "file": site.path,
        "line": site.line,
        "function": site.function,
        "via": site.via or None,
        "called_from": site_as_fields(site.caller),
    }
