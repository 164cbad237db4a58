"""docs/porting.md is true: every example under *after* passes, and every one under *before* is at least Python."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.conftest import Session

PORTING = (Path(__file__).parents[1] / "docs" / "porting.md").read_text()
BLOCKS = re.findall(r"(?:^<!-- runs: (\S+) -->\n)?^```python\n(.*?)^```$", PORTING, re.MULTILINE | re.DOTALL)
FILES = {name: source for name, source in BLOCKS if name}


def test_every_after_passes(pytester: pytest.Pytester, session: Session) -> None:
    for name, source in FILES.items():
        pytester.path.joinpath(name).write_text(source)
    result = session("-v", "-p", "no:cacheprovider", "-p", "no:asyncio")
    assert result.ret == 0
    passed = {line.partition("::")[0] for line in result.outlines if " PASSED " in line}
    assert passed == {name for name in FILES if name.startswith("test_")}


def test_every_example_is_python() -> None:
    assert len(BLOCKS) == PORTING.count("```python")
    for _, source in BLOCKS:
        ast.parse(source)


def test_each_section_has_a_before_and_an_after() -> None:
    sections = [part for part in PORTING.split("\n## ")[1:] if part.startswith("From ")]
    assert len(sections) == 6
    for section in sections:
        title = section.partition("\n")[0]
        assert re.search(r"^Before.*:\n\n```python", section, re.MULTILINE), title
        assert re.search(r"^After.*:\n\n<!-- runs: test_", section, re.MULTILINE), title
