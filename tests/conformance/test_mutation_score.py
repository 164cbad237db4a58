"""The mutants of benchmarks/conformance.py can be made, are spread over all gathers, and die of the right promise."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.holding.adapters import ADAPTERS
from benchmarks.holding.asking import Answer, Correct, Tried, try_mutant
from benchmarks.holding.copies import Copies
from benchmarks.holding.population import LEAST, SOURCES, Mutant, population, what_is_wrong_with
from benchmarks.holding.record import Record
from benchmarks.holding.tables import BEGIN, END, page_with, summary, survivors

from rankdrill.conformance import Promise
from rankdrill.conformance.ways import WAYS

MUTANTS = {mutant.name: mutant for mutant in population()}
QUICK = MUTANTS["switches set in the environment"]


def test_each_can_be_made_and_asked() -> None:
    assert [wrong for mutant in population() if (wrong := what_is_wrong_with(mutant))] == []


def test_there_are_enough_each_with_its_own_name_and_change() -> None:
    assert len(MUTANTS) == len(population()) >= LEAST
    changes = Counter((mutant.file, mutant.was, mutant.becomes) for mutant in population())
    assert set(changes.values()) == {1}


def test_they_are_in_every_gather_and_room_and_break_every_promise() -> None:
    gathers = {WAYS[ADAPTERS[name].way].gather for mutant in population() for name in mutant.through}
    assert gathers == {way.gather for way in WAYS.values()}
    rooms = {room.parent.name for room in (SOURCES / "gathers").glob("*/__init__.py")}
    assert {Path(mutant.file).parent.name for mutant in population()} == rooms | {""}
    assert {mutant.breaks for mutant in population()} == set(Promise)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (replace(QUICK, was="os"), "its text stands"),
        (replace(QUICK, was="nowhere to be found"), "stands 0 times in all_gather.py, not once"),
        (replace(QUICK, file="nowhere.py"), "there is no nowhere.py"),
        (replace(QUICK, through=("gather by post",)), "no adapter is called gather by post"),
        (replace(QUICK, becomes="return ("), "it is no Python"),
        (replace(QUICK, becomes=QUICK.was), "it changes or asks nothing"),
    ],
)
def test_what_cannot_be_made_or_asked_is_told(wrong: Mutant, told: str) -> None:
    assert told in what_is_wrong_with(wrong)


@pytest.mark.nightly
def test_one_is_killed_and_the_copy_without_the_mistake_is_not(tmp_path: Path) -> None:
    copies = Copies(tmp_path)
    found = try_mutant(copies, QUICK)
    assert found.killed
    assert found.said.startswith("not clean: after calls that worked")
    assert "the environment is" in found.said
    without = try_mutant(copies, replace(QUICK, becomes=QUICK.was))
    assert not without.killed
    assert without.said == f"all {without.answers[0].asked} questions passed"
    assert without.answers[0].asked > 1


@pytest.mark.nightly
def test_what_cannot_be_imported_is_not_killed(tmp_path: Path) -> None:
    broken = Mutant("", "all_gather.py", '__all__ = ["all_gather"]', "1 / 0", "", ("all_gather",), Promise.CLEAN)
    found = try_mutant(Copies(tmp_path), broken)
    assert not found.killed
    assert "ZeroDivisionError" in found.said


def _answered(mutant: Mutant, *complaints: str) -> Tried:
    return Tried(mutant, (Answer(3, complaints, "", 2.0),))


def test_what_was_answered_is_not_asked_again(tmp_path: Path) -> None:
    file, other = tmp_path / "score.json", MUTANTS["umask left"]
    first = Record(file, [QUICK, other], again=False)
    first.add(_answered(QUICK, "not clean: so"))
    first.add(_answered(other))
    first.add(Correct("gather", Answer(134, (), "", 30.0)))
    later = Record(file, [QUICK, replace(other, becomes="anything else")], again=True)
    assert (later.tried, later.correct) == (first.tried[:1], first.correct)
    assert later.has(QUICK)
    assert not later.has(other)
    assert (later.rounds_of("gather"), later.rounds_of("gather/shm")) == (1, 0)
    assert Record(file, [QUICK], again=False).tried == []


def test_the_score_says_what_was_missed_and_what_was_false() -> None:
    tried = [_answered(QUICK, "not clean: so"), _answered(MUTANTS["umask left"])]
    correct = [Correct("gather", Answer(134, ("not right: so",), "", 30.0))]
    assert summary(tried, correct).startswith(
        "population 2, found 1, false 1 (of 134 questions to 1 correct gathers), 34"
    )
    (missed,) = survivors(tried)
    assert "umask left, through all_gather_via_filesys: not found by clean" in missed
    page = page_with(f"before\n{BEGIN}\nwhat was there\n{END}\nafter\n", tried, correct)
    assert page.startswith("before\n")
    assert page.endswith("\nafter\n")
    assert "what was there" not in page
    assert "| clean | 2 | 1 | 4 |" in page
    assert "asked everything once (134 questions): 1 finding, which is false." in page
    assert "- umask left (storage/directories.py, `clean`)" in page
