"""docs/json.md has every field there is and no other, and its example is what comes of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rankdrill.diagnosis import Confidence, Finding, FindingKind, Side
from rankdrill.diagnosis.as_json import finding_as_fields, sureness_as_fields
from rankdrill.plugin import json_file
from rankdrill.worlds import Status, Verdict, as_json
from tests.conftest import Session

TEXT = (Path(__file__).parents[1] / "docs" / "json.md").read_text()


def section(title: str) -> str:
    """The text below a heading, up to the next."""
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def fields(title: str) -> list[str]:
    """What the table below a heading lists."""
    return re.findall(r"^\| `(\w+)` \|", section(title), re.MULTILINE)


def fence(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", section("Example"), re.MULTILINE | re.DOTALL)
    return str(found)


def steady(value: Any) -> Any:
    """`value` without how long something took and which release it was."""
    if isinstance(value, dict):
        return {name: steady(each) for name, each in value.items() if name not in ("elapsed_s", "rankdrill")}
    return [steady(each) for each in value] if isinstance(value, list) else value


@pytest.fixture
def document(pytester: pytest.Pytester, session: Session) -> dict[str, Any]:
    """What the example gives."""
    pytester.makepyfile(test_training=fence("python"))
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "--rankdrill-seed=1")
    session("--rankdrill-json=results.json", *options)
    found: dict[str, Any] = json.loads((pytester.path / "results.json").read_text())
    return found


def test_the_example_is_what_comes_of_it(document: dict[str, Any]) -> None:
    assert steady(json.loads(fence("json"))) == steady(document)


def test_each_table_has_every_field_and_no_other(document: dict[str, Any]) -> None:
    (result,) = document["tests"]
    rank = result["ranks"][1]
    assert sorted(document) == sorted(fields("The document"))
    assert sorted({*result, "ok"}) == sorted({*fields("A result"), *fields("A run")})
    assert sorted(rank) == sorted(fields("A rank"))
    assert sorted(rank["raised"]["site"]) == sorted(fields("A site"))
    for name in ("raised", "last_call"):
        row = next(line for line in section("A rank").splitlines() if line.startswith(f"| `{name}` |"))
        assert {f"`{field}`" for field in rank[name]} <= set(re.findall(r"`\w+`", row))


def test_every_word_is_listed() -> None:
    for words, title in ((Verdict, "A run"), (FindingKind, "A finding"), (Status, "A rank")):
        for word in words:
            assert f'`"{word}"`' in section(title), word


def test_a_finding_has_the_fields_that_its_table_lists() -> None:
    finding = Finding(
        FindingKind.SIZE, "all_reduce #3 on 'default'", "size", (Side((0,), "has 4", (None,)),), (0,), "g", 3
    )
    outcome = finding_as_fields(finding) | sureness_as_fields(finding)
    listed = [
        name
        for row in re.findall(r"^\| (`.*?) \|", section("A finding"), re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    ]
    assert sorted(outcome) == sorted(listed)
    assert {f"`{field}`" for field in outcome["sides"][0]} <= set(re.findall(r"`\w+`", section("A finding")))
    assert all(f'`"{word}"`' in section("A finding") for word in Confidence)


def test_formats_and_versions_are_those_there_are() -> None:
    assert f'| `format` | `"{json_file.FORMAT}"` |\n| `version` | {json_file.VERSION} |' in TEXT
    assert f'`"format": "{as_json.FORMAT}"` and\n`"version": {as_json.VERSION}`' in TEXT
