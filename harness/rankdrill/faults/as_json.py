"""A plan as JSON and back: one object per fault, its fields named as in the language."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from rankdrill.errors import PlanError
from rankdrill.faults.check import closest
from rankdrill.faults.fault import Fault
from rankdrill.faults.strike import When
from rankdrill.faults.where import What, Where
from rankdrill.step import Kind

__all__ = ["VERSION", "faults_from_json", "faults_to_json"]

VERSION = 1
_ANY = "*"
_EVERY = "every"
_FIELDS = ("rank", "strike", "args", "when", "kind", "op", "pattern", "nth")


def faults_to_json(faults: Iterable[Fault]) -> str:
    """See `Plan.to_json`."""
    return json.dumps({"version": VERSION, "faults": [_fault_to_json(fault) for fault in faults]}, indent=1)


def faults_from_json(text: str | bytes) -> list[Fault]:
    """See `Plan.from_json`."""
    if not isinstance(text, str | bytes | bytearray):
        kind = type(text).__name__
        raise PlanError(f"a plan in JSON is text or bytes, not {kind}; give what Plan.to_json() returned")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"the plan is no JSON: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("faults"), list):
        raise PlanError('a plan in JSON is {"version": 1, "faults": [...]}')
    if data.get("version") != VERSION:
        raise PlanError(f"the plan has version {data.get('version')!r}; this rankdrill reads version {VERSION}")
    return [_fault(entry, position) for position, entry in enumerate(data["faults"])]


def _fault_to_json(fault: Fault) -> dict[str, Any]:
    where = fault.where
    return {
        "rank": _ANY if where.rank is None else where.rank,
        "strike": fault.what.name,
        "args": list(fault.what.args),
        "when": str(where.when),
        "kind": str(where.kind or _ANY),
        "op": where.op or _ANY,
        "pattern": where.pattern,
        "nth": _EVERY if where.nth is None else where.nth,
    }


def _fault(entry: Any, position: int) -> Fault:
    place = f"fault {position} of the plan"
    if not isinstance(entry, dict):
        raise PlanError(f"{place} is {type(entry).__name__}, not an object")
    for key in entry:
        if key not in _FIELDS:
            raise PlanError(f"{place} has a field {key!r}; {closest(key, _FIELDS)}")
    for key in ("rank", "strike", "when", "kind"):
        if key not in entry:
            raise PlanError(f"{place} lacks {key!r}")
    try:
        where = Where(
            _unless(_ANY, entry["rank"]),
            _word(When, entry["when"]),
            None if entry["kind"] == _ANY else _word(Kind, entry["kind"]),
            _unless(_ANY, entry.get("op", _ANY)),
            entry.get("pattern"),
            _unless(_EVERY, entry.get("nth", 1)),
        )
        return Fault(where, What(str(entry["strike"]), tuple(entry.get("args", ()))))
    except PlanError as error:
        raise PlanError(f"{place}: {error}") from None
    except TypeError as error:
        raise PlanError(f"{place}: a field has the wrong type ({error})") from None


def _unless(wildcard: str, value: Any) -> Any:
    return None if value == wildcard else value


def _word(choices: Any, value: Any) -> Any:
    try:
        return choices(value)
    except ValueError:
        raise PlanError(f"{value!r} is none of {', '.join(choices)}") from None
