"""A run as a page: the verdict, each rank's steps in time, who waits for whom, and where they stood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankdrill.ledger import Record
from rankdrill.report.page import Strings, page
from rankdrill.report.picture import Lane, Picture

__all__ = ["run_as_html"]

OPEN, RAISED, STRUCK, FAULT, MET = 1, 2, 4, 8, 16  # what is special about a step; the page's script knows them too


def run_as_html(picture: Picture) -> str:
    """One self-contained page of `picture`; ranks that did the same share a line until they are asked for."""
    strings = Strings()
    began = min((record.begin_ns for lane in picture.lanes for record in lane.records), default=0)
    data = {
        "title": picture.title,
        "ok": picture.ok,
        "headline": picture.headline,
        "blocks": [{"heading": block.heading, "text": block.text} for block in picture.blocks],
        "stacks": [{"ranks": stack.ranks, "text": stack.text} for stack in picture.stacks],
        "repeat": picture.repeat,
        "elapsed": round(picture.elapsed, 3),
        "notes": picture.notes,
        "issued": picture.issued,
        "ended": picture.ended,
        "lanes": [_lane(picture, lane, began, strings) for lane in picture.lanes],
        "strings": strings.table,
    }
    return page(picture.title, "run.js", data)


def _lane(picture: Picture, lane: Lane, began: int, strings: Strings) -> dict[str, Any]:
    return {
        "rank": lane.rank,
        "status": lane.status,
        "told": strings.number(lane.told),
        "role": lane.role,
        "waits": lane.waits_for,
        "dropped": lane.dropped,
        "steps": _columns(picture, lane, lane.records, began, strings),
    }


def _columns(
    picture: Picture, lane: Lane, records: Sequence[Record], began: int, strings: Strings
) -> dict[str, list[int]]:
    """By what is told of steps; times are µs since the first step of all, a duration is -1 where there is no end."""
    steps = [record.step for record in records]
    return {
        "begin": [(record.begin_ns - began) // 1000 for record in records],
        "took": [(record.end_ns - record.begin_ns) // 1000 if record.end_ns else -1 for record in records],
        "kind": [strings.number(str(step.kind)) for step in steps],
        "op": [strings.number(step.op) for step in steps],
        "group": [strings.number(step.target) for step in steps],
        "number": [step.sequence for step in steps],
        "text": [strings.number(str(step)) for step in steps],
        "site": [strings.number(str(step.site) if step.site is not None else "") for step in steps],
        "flags": [_flags(picture, lane, record) for record in records],
    }


def _flags(picture: Picture, lane: Lane, record: Record) -> int:
    met = picture.is_of_finding(record)
    return (
        OPEN * (not record.end_ns)
        | RAISED * bool(record.error)
        | STRUCK * (record.fault is not None)
        | FAULT * (met and picture.is_at_fault(lane, record))
        | MET * met
    )
