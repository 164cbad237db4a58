"""A pytest plugin: of each mistake the examples until it showed, the seconds that the test took, what was shown."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_told: dict[str, dict[str, Any]] = {}
_seconds: dict[str, float] = {}
_HERE = Path(os.environ["RANKDRILL_FINDING"])
_PAYLOADS = re.compile(r"^ *payloads=(.*?),\n +\)$", re.MULTILINE | re.DOTALL)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    began = time.perf_counter()
    try:
        return (yield)
    finally:
        _seconds[item.nodeid] = time.perf_counter() - began


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call":
        return
    names = json.loads((_HERE / "asked.json").read_text())["mistakes"]
    name = next(name for name in names if report.nodeid.endswith(f"[{name}]"))
    file = _HERE / f"{names.index(name)}.txt"
    examples = file.read_text() if file.exists() else ""
    first = examples.find("+") + 1 or None
    shown = _PAYLOADS.search(report.longreprtext)
    smallest = " ".join(shown[1].split()) if shown else report.longreprtext if first else ""
    _told[name] = {"examples": first, "seconds": _seconds[report.nodeid], "smallest": smallest, "ran": len(examples)}


def pytest_sessionfinish() -> None:
    (_HERE / "told.json").write_text(json.dumps(_told))
