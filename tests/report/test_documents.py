"""What machines read: JSON and JUnit."""

from __future__ import annotations

import json
from xml.etree import ElementTree

from rankdrill.report import Tally, drill_as_json, drill_as_junit
from tests.report.samples import FAILED, PASSED, RESULTS


def test_json_holds_every_case_and_how_to_repeat_it() -> None:
    document = json.loads(drill_as_json(Tally(RESULTS), elapsed=2.0, complete=True))
    assert (document["schema"], document["ok"], document["complete"], document["elapsed_s"]) == (1, False, True, 2.0)
    assert document["counts"] == {"right": 1, "together": 1, "hang": 2}
    failed = document["cases"][2]
    assert failed["path"] == "get_configs_parallel/files"
    assert (failed["judgement"], failed["passed"], failed["rank"], failed["size"]) == ("hang", False, 2, 4)
    assert failed["repeat"] == FAILED.case.repeat


def test_a_drill_that_was_interrupted_is_not_ok() -> None:
    document = json.loads(drill_as_json(Tally([PASSED]), elapsed=2.0, complete=False))
    assert (document["ok"], document["complete"]) == (False, False)


def test_junit_has_a_suite_per_path_and_survives_control_characters() -> None:
    root = ElementTree.fromstring(drill_as_junit(Tally(RESULTS), elapsed=2.0))
    assert {name: root.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "4",
        "failures": "2",
        "errors": "0",
    }
    assert [suite.get("name") for suite in root] == ["all_gather", "get_configs_parallel/files"]
    failure = root.find("./testsuite[2]/testcase[1]/failure")
    assert failure is not None
    assert failure.get("type") == "hang"
    assert failure.text is not None
    assert "rank 2 was killed" in failure.text
    assert failure.text.endswith(FAILED.case.repeat)
