"""The page of the catalogue is of this catalogue: its kinds, its programs, its misses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.cataloguing.document import MEANINGS, WITHOUT_SECTION, source_of

from rankdrill.diagnosis import FindingKind
from tests.catalogue.misses import known_misses
from tests.catalogue.programs import KINDS, catalogue
from tests.catalogue.scoring import places_in

PAGE = (Path(__file__).parents[2] / "docs" / "catalogue.md").read_text()
PROGRAMS = {program.name: program for program in catalogue()}


def test_every_kind_has_its_section() -> None:
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE) == [kind.capitalize() for kind in KINDS]
    assert set(MEANINGS) == set(KINDS)


def test_every_kind_that_is_told_has_a_section_or_a_reason_to_have_none() -> None:
    told = {str(kind) for kind in FindingKind}
    assert told - set(KINDS) == set(WITHOUT_SECTION)
    assert set(KINDS) <= told
    assert all(f"*{kind}*, since {why}" in PAGE for kind, why in WITHOUT_SECTION.items())


@pytest.mark.parametrize("kind", KINDS)
def test_every_section_has_one_program_of_its_kind_and_what_is_said_of_it(kind: str) -> None:
    section = PAGE.partition(f"\n## {kind.capitalize()}\n")[2].partition("\n## ")[0]
    ((name, source),) = re.findall(r"```python\n# (\S+), on \d+ ranks\n(.*?)\n```", section, re.DOTALL)
    (report,) = re.findall(r"```text\n(.*?)\n```", section, re.DOTALL)
    truth = PROGRAMS[name].truth
    assert truth is not None
    assert truth.kind == kind
    assert source.count("# culprit") == len(truth.lines)
    file, line = places_in(report)[0]
    assert PROGRAMS[name].file.endswith(file)
    assert line in truth.lines


def test_the_programs_shown_are_those_of_the_catalogue() -> None:
    shown = re.findall(r"```python\n# (\S+), on (\d+) ranks\n(.*?)\n```", PAGE, re.DOTALL)
    for name, ranks, source in shown:
        assert (source, int(ranks)) == (source_of(PROGRAMS[name]), PROGRAMS[name].ranks)


def test_how_many_there_are_is_what_it_says() -> None:
    mistakes = [program for program in catalogue() if program.truth is not None]
    assert (
        f"holds {len(mistakes)} programs with one mistake each and {len(catalogue()) - len(mistakes)} correct" in PAGE
    )


def test_what_is_not_told_right_is_a_known_miss() -> None:
    counts = re.findall(r"(\d+) of (\d+) are told strictly right", PAGE)
    assert len(counts) == len(KINDS)
    assert sum(int(made) - int(told) for told, made in counts) == len(known_misses())


def test_the_known_misses_are_told_with_their_reason() -> None:
    told = {
        name
        for line in re.findall(r"^Not told right, since .*$", PAGE, re.MULTILINE)
        for name in re.findall(r"`(\S+?)`", line)
    }
    assert told == set(known_misses())
