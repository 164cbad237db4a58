"""The page of the catalogue is of this catalogue: its kinds, its programs, its misses."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.cataloguing.document import MEANINGS, source_of

from tests.catalogue.misses import known_misses
from tests.catalogue.programs import KINDS, catalogue

PAGE = (Path(__file__).parents[2] / "docs" / "catalogue.md").read_text()


def test_every_kind_has_its_section() -> None:
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE) == [kind.capitalize() for kind in KINDS]
    assert set(MEANINGS) == set(KINDS)


def test_the_programs_shown_are_those_of_the_catalogue() -> None:
    by_name = {program.name: program for program in catalogue()}
    shown = re.findall(r"```python\n# (\S+), on (\d+) ranks\n(.*?)\n```", PAGE, re.DOTALL)
    assert len(shown) >= 14
    for name, ranks, source in shown:
        assert (source, int(ranks)) == (source_of(by_name[name]), by_name[name].ranks)


def test_how_many_there_are_is_what_it_says() -> None:
    mistakes = [program for program in catalogue() if program.truth is not None]
    assert (
        f"holds {len(mistakes)} programs with one mistake each and {len(catalogue()) - len(mistakes)} correct" in PAGE
    )


def test_the_known_misses_are_told_with_their_reason() -> None:
    told = {
        name
        for line in re.findall(r"^Not told right, since .*$", PAGE, re.MULTILINE)
        for name in re.findall(r"`(\S+?)`", line)
    }
    assert told == set(known_misses())
