"""A run as Chrome's trace events: a slice for each step, on its rank and thread."""

from __future__ import annotations

import json
from typing import Any

from rankdrill.report import run_as_trace
from rankdrill.report.picture import Lane
from tests.report.test_run_html import lanes, picture


def events(kind: str, **chosen: Any) -> list[dict[str, Any]]:
    trace = json.loads(run_as_trace(picture(lanes(3, 1), 1)))
    assert trace["otherData"]["verdict"].startswith("missing call: rank 1 leaves out all_reduce #4")
    return [
        event
        for event in trace["traceEvents"]
        if event["ph"] == kind and all(event[name] == value for name, value in chosen.items())
    ]


def test_each_rank_is_a_process_and_the_culprit_is_called_one() -> None:
    names = [event["args"]["name"] for event in events("M", name="process_name")]
    assert names == ["rank 0 (victim)", "rank 1 (culprit)", "rank 2 (victim)"]


def test_each_step_is_a_slice_with_its_line_in_us() -> None:
    first, second, *_ = events("X", pid=1)
    assert (first["name"], first["ts"], first["dur"]) == ("all_reduce #0", 0.0, 500.0)
    assert second["ts"] == 1000.0
    assert first["args"]["at"] == "train.py:41 in step"
    assert len(events("X", pid=1)) == 4


def test_who_never_came_out_is_there_to_the_end() -> None:
    last = events("X", pid=0)[-1]
    assert last["args"]["state"] == "begun"
    assert last["ts"] + last["dur"] >= max(event["ts"] + event["dur"] for event in events("X"))


def test_a_run_of_nothing() -> None:
    only = picture([Lane(0, "died", "died", "culprit", (), ())], 0)
    assert [event["ph"] for event in json.loads(run_as_trace(only))["traceEvents"]] == ["M", "M"]
