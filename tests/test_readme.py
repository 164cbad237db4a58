"""The README is true: its example fails as printed, its commands set everything up, its faults are those there are."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from benchmarks.cataloguing.bare import DETAIL, FLIGHT, GLOO

from rankdrill.plugin.marker import RanksMark
from tests.catalogue.programs import catalogue
from tests.conftest import Session

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CALLED = {
    GLOO: "plain gloo",
    DETAIL: "`TORCH_DISTRIBUTED_DEBUG=DETAIL`",
    FLIGHT: "torch's flight recorder and its analyzer",
}
LAST_DIGIT = 0.01  # of a share


def block(language: str, containing: str) -> str:
    """The one fenced block of `language` with `containing` in it."""
    fences = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    (found,) = [fence for fence in fences if containing in fence]
    return str(found)


def test_the_example_fails_exactly_as_printed(pytester: pytest.Pytester, session: Session) -> None:
    pytester.makepyfile(test_training=block("python", "def mean_loss"))
    printed = block("text", "victims:").strip()
    (seed,) = re.findall(r"--rankdrill-seed=\d+", printed)
    result = session("-q", "-p", "no:cacheprovider", seed)
    result.assert_outcomes(failed=1)
    assert printed in str(result.stdout)


def test_the_example_is_the_one_in_examples() -> None:
    assert block("python", "def mean_loss") == (Path(__file__).parents[1] / "examples" / "test_training.py").read_text()


def test_the_commands_set_everything_up_and_use_the_constraints() -> None:
    commands = dict(re.findall(r"<!-- command: (\w+) -->\n```sh\n(.*?)```", README, re.DOTALL))
    assert set(commands) == {"drill", "tests"}
    for command in commands.values():
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install")
        assert "-c constraints.txt" in command
    assert commands["drill"].rstrip().endswith("rankdrill drill")


def test_every_strike_is_in_the_fault_table_and_nothing_else() -> None:
    from rankdrill.faults import FAMILIES

    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", README, re.MULTILINE)
    listed = {family: re.findall(r"`(\w+)[`(]", strikes) for family, strikes in rows if "`" in strikes}
    assert listed == {family: [strike.name for strike in strikes] for family, strikes in FAMILIES.items()}


def test_every_option_of_the_marker_is_shown() -> None:
    shown = set(re.findall(r"(\w+)=", block("python", "# parametrize the world size")))
    hidden = {"sizes", "engine", "drawn_size", "drawn_faults"}  # none of them is an option by that name
    assert shown == {option.name for option in fields(RanksMark)} - hidden


def test_the_documents_it_points_to_are_there() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (Path(__file__).parents[1] / target).exists(), target


def how_much_it_finds() -> str:
    return README.partition("\n## How much it finds\n")[2].partition("\n## ")[0]


def rows() -> dict[str, list[str]]:
    """Of the table of the catalogue: the figures by who has them."""
    found = [line.strip("| ").split(" | ") for line in how_much_it_finds().splitlines() if line.startswith("| ")]
    return {name: figures for name, *figures in found if figures[-1] != "seconds, median"}


def test_its_catalogue_has_as_many_programs_and_everybody_is_in_the_table() -> None:
    counts = len(catalogue("mistakes")), len(catalogue("correct"))
    told = re.search(r"^(\d+) programs with one mistake each and (\d+) correct ones", how_much_it_finds(), re.MULTILINE)
    assert told is not None
    assert (int(told[1]), int(told[2])) == counts
    assert list(rows()) == ["rankdrill", *CALLED.values()]


def test_what_is_told_strictly_right_is_the_page_s_share() -> None:
    page = (ROOT / "docs" / "catalogue.md").read_text()
    right, programs = zip(*re.findall(r"(\d+) of (\d+) are told strictly right", page), strict=True)
    assert sum(map(int, programs)) == len(catalogue("mistakes"))
    assert abs(float(rows()["rankdrill"][2]) - sum(map(int, right)) / sum(map(int, programs))) < LAST_DIGIT


def test_the_rows_have_shares_findings_and_seconds() -> None:
    for figures in rows().values():
        assert len(figures) == 5
        assert all(0 <= float(share) <= 1 for share in figures[:3])
        assert float(figures[2]) <= float(figures[0])  # of what is told right all is noticed
        assert float(figures[3]) >= 1  # of what is noticed
        assert float(figures[4].split()[0]) > 0
