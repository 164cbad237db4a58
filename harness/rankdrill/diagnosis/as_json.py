"""Findings and call sites as fields; `docs/json.md` says what each is."""

from __future__ import annotations

from typing import Any

from rankdrill.diagnosis.finding import Finding
from rankdrill.step import Site

__all__ = ["finding_as_fields", "site_as_fields"]


def finding_as_fields(finding: Finding) -> dict[str, Any]:
    """A finding: what kind, who, and what each side did."""
    return {
        "kind": str(finding.kind),
        "culprits": list(finding.culprits),
        "step": finding.step,
        "argument": finding.argument,
        "sides": [
            {"ranks": list(side.ranks), "did": side.did, "sites": [site_as_fields(site) for site in side.sites]}
            for side in finding.sides
        ],
    }


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
