"""A run in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rankdrill.ledger import Record
from rankdrill.report.picture import Lane, Picture

__all__ = ["run_as_trace"]


def run_as_trace(picture: Picture) -> str:
    """JSON: a process for each rank, its threads, and a slice for each step, in µs since the first step of all.

    A step without an end lasts as long as anything is known; its arguments say that it is open.
    """
    times = [record.begin_ns for lane in picture.lanes for record in lane.records]
    ends = [record.end_ns for lane in picture.lanes for record in lane.records]
    began, until = min(times, default=0), max([*times, *ends], default=0)
    events = [event for lane in picture.lanes for event in _events(picture, lane, began, until)]
    said = {"verdict": picture.headline, "ok": picture.ok, "repeat": picture.repeat, "notes": list(picture.notes)}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": said})


def _events(picture: Picture, lane: Lane, began: int, until: int) -> Iterator[dict[str, Any]]:
    role = f" ({lane.role})" if lane.role else ""
    yield {"ph": "M", "name": "process_name", "pid": lane.rank, "args": {"name": f"rank {lane.rank}{role}"}}
    yield {"ph": "M", "name": "process_sort_index", "pid": lane.rank, "args": {"sort_index": lane.rank}}
    for record in lane.records:
        yield _slice(picture, lane, record, began, until)


def _slice(picture: Picture, lane: Lane, record: Record, began: int, until: int) -> dict[str, Any]:
    step = record.step
    told = {
        "step": str(step),
        "at": str(step.site) if step.site is not None else "",
        "state": record.state.name.lower(),
        "error": record.error,
        "fault": record.fault,
        "at fault": picture.is_at_fault(lane, record),
    }
    event = {
        "ph": "X",
        "name": f"{step.op} #{step.sequence}" if step.sequence >= 0 else step.op,
        "cat": str(step.kind),
        "pid": lane.rank,
        "tid": record.thread,
        "ts": (record.begin_ns - began) / 1000,
        "dur": ((record.end_ns or until) - record.begin_ns) / 1000,
        "args": {name: value for name, value in told.items() if value not in ("", None, False)},
    }
    return event | ({"cname": "terrible"} if told["at fault"] else {})
