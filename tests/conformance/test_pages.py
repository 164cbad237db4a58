"""The pages leave out nothing that there is."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from rankdrill.conformance import Judgement, Promise, Setting
from rankdrill.conformance.gives import GIVES
from rankdrill.conformance.kit.samples.chosen import SAMPLES
from rankdrill.report.matrix import WORDS

DOCS = Path(__file__).parents[2] / "docs"
ASKED = (DOCS / "conformance.md").read_text()
STRUCK = (DOCS / "drill.md").read_text()


@pytest.mark.parametrize("judgement", Judgement)
def test_every_judgement_is_in_the_table(judgement: Judgement) -> None:
    assert f"| {WORDS[judgement]} | {judgement} | " in STRUCK


@pytest.mark.parametrize("promise", Promise)
def test_every_promise_is_in_the_table(promise: Promise) -> None:
    assert f"\n| `{promise}` | " in ASKED


@pytest.mark.parametrize("word", [*GIVES, *SAMPLES])
def test_every_word_that_a_gather_is_described_by_is_told(word: str) -> None:
    assert f'`"{word}"`' in ASKED


def test_every_field_of_a_setting_is_told() -> None:
    told = {
        word.strip("`, ")
        for line in ASKED.splitlines()
        if line.startswith("| `")
        for word in line.split("|")[1].split()
    }
    assert {field.name for field in fields(Setting)} <= told
