"""Which lock a thread waits for, and which line has taken it, as the source says."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankdrill.diagnosis.held_locks import held_lock, wants_a_lock
from rankdrill.step import Site

SOURCE = """\
def note():
    with lock: seen.append(1)


def twice():
    with lock:
        note()


def by_hand():
    lock.acquire()
    note()
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    return str(path)


@pytest.mark.parametrize(("function", "at", "taken"), [("twice", 7, 6), ("by_hand", 12, 11)])
def test_who_has_it_is_not_who_is_about_to(file: str, function: str, at: int, taken: int) -> None:
    thread = [Site(file, 2, "note"), Site(file, at, function)]
    held = held_lock([thread])
    assert held is not None
    assert (held.lock, held.taken_at.line, held.by_itself) == ("lock", taken, True)
    assert wants_a_lock(thread)


def test_a_lock_that_nobody_has(file: str) -> None:
    thread = [Site(file, 2, "note")]
    assert held_lock([thread]) is None
    assert wants_a_lock(thread)
    assert not wants_a_lock([Site(file, 7, "twice")])
