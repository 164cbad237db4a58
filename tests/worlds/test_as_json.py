"""An outcome as JSON: of real runs, and of ends that real ranks come to only now and then."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
import torch.distributed as dist

from rankdrill import Outcome, Plan, World
from rankdrill.errors import RemoteError
from rankdrill.step import Site
from rankdrill.worlds import Death, RankOutcome, Status
from rankdrill.worlds.judge import blame, verdict_on
from rankdrill.worlds.rank_outcome import RenderedError
from tests.worlds import bodies
from tests.worlds.ended import died, raised, returned, stuck, waits

SITE = Site("/train.py", 12, "step", "all_reduce")


def fields_of(outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(outcome.to_json())
    return found


def of(*ranks: RankOutcome) -> dict[str, Any]:
    culprits, victims = blame(ranks)
    return fields_of(Outcome(ranks, verdict_on(ranks), culprits, victims, elapsed=1.23456))


def test_a_run_that_went_well(two: World) -> None:
    found = fields_of(two.run(bodies.total))
    assert (found["format"], found["version"]) == ("rankdrill outcome", 1)
    assert (found["ok"], found["verdict"], found["summary"]) == (True, "together", "2 ranks returned")
    assert (found["culprits"], found["victims"], found["findings"], found["unfired"]) == ([], [], [], [])
    assert [rank["status"] for rank in found["ranks"]] == ["returned", "returned"]
    site = found["ranks"][1]["last_call"]["site"]
    assert (site["file"], site["function"], site["via"]) == (os.path.relpath(bodies.__file__), "total", "all_reduce")


def test_a_rank_that_exits_and_a_fault_that_does_not_strike(two: World) -> None:
    def body() -> None:
        bodies.total()
        if dist.get_rank() == 1:
            os._exit(3)

    found = fields_of(two.run(body, plan=Plan.parse("rank 0: kill after file.fsync")))
    assert (found["ok"], found["verdict"], found["culprits"]) == (False, "died", [1])
    assert "did not fire" in found["unfired"][0]
    gone = found["ranks"][1]
    assert (gone["died"]["code"], gone["died"]["signal"], gone["died"]["how"]) == (3, None, "by os._exit")
    assert gone["died"]["site"]["function"] == "body"
    assert gone["told"].startswith("rank 1 exited with code 3, by os._exit at ")


def test_the_end_of_the_harness(two: World) -> None:
    def body() -> None:
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()

    found = fields_of(two.run(body))
    assert found["harness"] == "the process that ranks are forked from was killed by SIGKILL"
    assert (found["culprits"], found["victims"]) == ([], [0, 1])


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (KeyError("k"), "KeyError", "'k'"),
        (RemoteError("NeedsTwoError", "one and two"), "NeedsTwoError", "one and two"),
        (RenderedError("all of it", "NeedsTwoError: one: and two", b""), "NeedsTwoError", "one: and two"),
        (RenderedError("all of it", "assert 1 == 2", b""), "assert 1 == 2", ""),
    ],
)
def test_what_was_raised_has_its_type_whoever_could_load_it(error: BaseException, kind: str, message: str) -> None:
    (rank,) = of(raised(0, error, site=SITE))["ranks"]
    site = {"file": "/train.py", "line": 12, "function": "step", "via": "all_reduce", "called_from": None}
    assert rank["raised"] == {"type": kind, "message": message, "site": site}


def test_a_signal_without_a_name_is_a_number() -> None:
    found = of(RankOutcome(0, Status.DIED, death=Death(None, 63, 1)), died(1))
    assert [rank["died"]["signal"] for rank in found["ranks"]] == ["63", "SIGKILL"]


def test_who_left_is_told_as_seen_by_those_that_wait_and_where_these_are() -> None:
    stack = 'Current thread 0x01 (most recent call first):\n  File "/train.py", line 3 in loss\n'
    stack += '  File "/train.py", line 9 in step\n'
    found = of(waits(0, 1, stack=stack), returned(1))
    assert found["findings"][0]["sides"][0]["did"] == "leaves out barrier #0 on 'default'"
    waiting = found["ranks"][0]["stuck"]
    assert (waiting["in"]["step"], waiting["in"]["site"]) == ("collective.barrier #0 on 'default'", None)
    assert (waiting["waits_for"], waiting["innermost"]["line"]) == ([1], 3)
    assert (waiting["innermost"]["called_from"]["line"], waiting["innermost"]["called_from"]["called_from"]) == (
        9,
        None,
    )
    assert found["elapsed_s"] == 1.2346


def test_who_is_stuck_and_could_not_say_where() -> None:
    (rank,) = of(stuck(0))["ranks"]
    unknown: dict[str, object] = {"doing": None, "processor_s": None, "since_last_step_s": None, "kernel": []}
    assert rank["stuck"] == {"in": None, "waits_for": [], "innermost": None, **unknown}
