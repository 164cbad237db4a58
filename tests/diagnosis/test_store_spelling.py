"""Which keys differ in their spelling alone, and which have one form."""

from __future__ import annotations

import pytest

from rankdrill.diagnosis.stores.spelling import same_but_for_spelling, same_form


@pytest.mark.parametrize(
    ("key", "other"),
    [
        ("ready/2", "ready/02"),
        ("ready/2", "Ready/2"),
        ("run-1/weights_ready", "run-1/weights-ready"),
        ("rank2", "rank_2"),
        ("tokenizer", "tokeniser"),
        ("tokenizer", "tokenzier"),
        ("done/3", "dnoe/3"),
    ],
)
def test_a_slip(key: str, other: str) -> None:
    assert same_but_for_spelling(key, other)
    assert same_but_for_spelling(other, key)


@pytest.mark.parametrize(
    ("key", "other"),
    [
        ("ready/2", "ready/2"),
        ("ready/2", "ready/3"),
        ("ready/2", "ready/12"),
        ("ready/2", "ready"),
        ("go", "no"),
        ("a/b", "a/c"),
        ("a-long-common-prefix/go", "a-long-common-prefix/no"),
        ("start", "stop"),
        ("weights", "buckets"),
        ("vocabulary", "vocabularies"),
        ("step/1/2", "step/12"),
        ("step/1/2", "step/2/1"),
        ("train/eval/done", "eval/train/done"),
    ],
)
def test_another_key(key: str, other: str) -> None:
    assert not same_but_for_spelling(key, other)


@pytest.mark.parametrize(
    ("key", "other", "same"),
    [
        ("ready/2", "ready/3", True),
        ("ready/2", "ready/12", True),
        ("ready/02", "ready/12", True),
        ("ready/2", "ready/03", False),
        ("ready/02", "ready/1", False),
        ("ready/2", "ready/2", False),
        ("ready/2", "Ready/3", False),
        ("a1/ready/2", "a2/ready/3", False),
    ],
)
def test_keys_of_one_form(key: str, other: str, same: bool) -> None:
    assert same_form(key, other) is same
