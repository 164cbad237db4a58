"""Random numbers: each rank its own, as processes have, and the same ones again with the same seed."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

DRAWS = """
import json, random, numpy
from pathlib import Path

def drawn():
    return [random.random(), float(numpy.random.rand()), float(torch.rand(())), torch.initial_seed()]

def drawn_by_all(drawn):
    all_drawn = [None] * dist.get_world_size()
    dist.all_gather_object(all_drawn, drawn)
    return all_drawn
"""


def test_ranks_draw_different_numbers(run: Run) -> None:
    ran = run(
        DRAWS
        + """
@pytest.mark.ranks(3)
def test_it():
    for numbers in zip(*drawn_by_all(drawn())):
        assert len(set(numbers)) == 3, numbers

@pytest.mark.ranks(3)
def test_a_missing_broadcast_is_noticed():
    first, *others = drawn_by_all(torch.nn.Linear(2, 2).weight.tolist())
    assert all(other != first for other in others)
"""
    )
    ran.result.assert_outcomes(passed=2)


def test_seed_same_gives_all_ranks_the_same(run: Run) -> None:
    ran = run(
        DRAWS
        + """
@pytest.mark.ranks(3, seed="same")
def test_it():
    for numbers in zip(*drawn_by_all(drawn())):
        assert len(set(numbers)) == 1, numbers
"""
    )
    ran.result.assert_outcomes(passed=1)


WRITES = """
@pytest.mark.ranks(2)
def test_it(rank):
    Path(f"drawn-{rank.index}").write_text(json.dumps(drawn()))
    assert rank.index == 0
"""


def test_the_printed_seed_gives_the_same_numbers_again(run: Run, pytester: pytest.Pytester) -> None:
    def numbers(*args: str) -> tuple[list[str], Ran]:
        ran = run(DRAWS + WRITES, *args)
        return [(pytester.path / f"drawn-{rank}").read_text() for rank in (0, 1)], ran

    first, ran = numbers()
    (seed,) = set(re.findall(r"--rankdrill-seed=(\d+)", ran.screen))
    assert f"test_it' --rankdrill-seed={seed}" in ran.failure("test_it"), "the line that runs it again has it"
    assert numbers("--rankdrill-seed", seed)[0] == first
    assert numbers("--rankdrill-seed", str(int(seed) + 1))[0] != first


def test_the_order_of_tests_does_not_change_what_each_draws(run: Run, pytester: pytest.Pytester) -> None:
    source = (
        DRAWS
        + """
@pytest.mark.parametrize("name", ["a", "b", "c"])
@pytest.mark.ranks(2)
def test_it(rank, name):
    Path(f"{name}-{rank.index}").write_text(json.dumps(drawn()))
"""
    )
    run(source, "--rankdrill-seed=1")
    before = {path.name: path.read_text() for path in pytester.path.glob("?-?")}
    run(source, "--rankdrill-seed=1", "-k", "c or a")
    assert {path.name: path.read_text() for path in pytester.path.glob("?-?")} == before
    assert len(set(before.values())) == 6


@pytest.mark.parametrize("where", ["when imported", "a session's fixture"])
def test_who_seeds_for_all_ranks_is_left_to_it(run: Run, where: str) -> None:
    seeding = {
        "when imported": "torch.manual_seed(5)\nrandom.seed(5)\nnumpy.random.seed(5)\n",
        "a session's fixture": """
@pytest.fixture(scope="session", autouse=True)
def seeded():
    torch.manual_seed(5)
    random.seed(5)
    numpy.random.seed(5)
""",
    }[where]
    ran = run(
        DRAWS
        + seeding
        + """
@pytest.mark.ranks(2)
def test_one():
    one, other = drawn_by_all(drawn())
    assert one == other

@pytest.mark.ranks(2)
def test_two():
    one, other = drawn_by_all(drawn())
    assert one == other
"""
    )
    ran.result.assert_outcomes(passed=2)


def test_values_drawn_at_import_are_those_of_all_ranks(run: Run) -> None:
    # As where a parent draws them for its workers; what the body draws stays each rank's own.
    ran = run(
        DRAWS
        + """
@pytest.mark.parametrize("at_import", [drawn()], ids=["drawn"])
@pytest.mark.ranks(2)
def test_it(at_import):
    one, other = drawn_by_all(at_import)
    assert one == other
    for one, other in zip(*drawn_by_all(drawn())):
        assert one != other
"""
    )
    ran.result.assert_outcomes(passed=1)


def test_each_generator_is_left_to_who_seeds_it(run: Run) -> None:
    ran = run(
        DRAWS
        + """
numpy.random.seed(5)
numpy.random.rand(1000)
random.random()

@pytest.mark.ranks(2)
def test_it():
    for draw in (random.random, lambda: torch.rand(1).item()):
        one, other = drawn_by_all(draw())
        assert one != other
    one, other = drawn_by_all(numpy.random.rand())
    assert one == other
"""
    )
    ran.result.assert_outcomes(passed=1)


def test_a_fixture_that_only_draws_is_none_that_seeds(run: Run) -> None:
    ran = run(
        DRAWS
        + """
SEEDS = set()

@pytest.fixture(scope="module")
def data():
    return [drawn() for _ in range(1000)]

@pytest.mark.ranks(2)
@pytest.mark.parametrize("i", range(2))
def test_it(data, i):
    assert torch.initial_seed() not in SEEDS
    SEEDS.add(torch.initial_seed())
"""
    )
    ran.result.assert_outcomes(passed=2)


def test_what_a_file_seeds_is_put_back_beside_a_fixture_that_seeds_something_else(run: Run) -> None:
    ran = run(
        DRAWS
        + """
torch.manual_seed(3)

@pytest.fixture(scope="module", autouse=True)
def seeded():
    random.seed(5)

@pytest.mark.ranks(2)
@pytest.mark.parametrize("i", range(2))
def test_it(i):
    drawn = torch.rand(1).item()
    assert drawn == torch.rand(1, generator=torch.Generator().manual_seed(3)).item()
"""
    )
    ran.result.assert_outcomes(passed=2)


def test_a_fixture_that_has_been_torn_down_seeds_no_more(run: Run) -> None:
    ran = run(
        DRAWS
        + """
class TestSeeded:
    @pytest.fixture(scope="class", autouse=True)
    def seeded(self):
        torch.manual_seed(5)

    @pytest.mark.ranks(2)
    def test_one(self):
        one, other = drawn_by_all(torch.initial_seed())
        assert one == other == 5

@pytest.mark.ranks(2)
def test_after():
    one, other = drawn_by_all(drawn())
    assert one != other
"""
    )
    ran.result.assert_outcomes(passed=2)


def test_each_hypothesis_example_draws_the_same_again(run: Run) -> None:
    ran = run(
        DRAWS
        + """
from hypothesis import given, settings, strategies as st
seen = set()

@pytest.mark.ranks(2)
@settings(max_examples=5, deadline=None)
@given(n=st.integers())
def test_it(n):
    mine = drawn()
    seen.add(tuple(mine))
    one, other = drawn_by_all(mine)
    assert one != other
    assert len(seen) == 1
"""
    )
    ran.result.assert_outcomes(passed=1)


FAILS_AFTER = {
    "torch": "torch.randn(3)",
    "numpy": "numpy.random.rand(3000)",
    "random": "random.random()",
    "a model": "torch.nn.Linear(2, 2)",
}
FAILS_ALIKE = {
    "nothing": "pass",
    "own seeds": "torch.manual_seed(0); random.seed(1); numpy.random.seed(2); torch.rand(1); random.random()",
    "own generators": "torch.randn(3, generator=torch.Generator().manual_seed(0)); random.Random(0).random()",
    "something else": "torch.randn(3); dist.all_reduce(torch.ones(dist.get_rank() + 1))",
}


def test_a_failure_after_drawing_says_how_all_draw_the_same(run: Run) -> None:
    tests = [
        f"@pytest.mark.ranks(2)\ndef test_{kind}_{number}():\n    {line}\n    assert dist.get_rank() > 1\n\n"
        for kind, lines in (("drew", FAILS_AFTER), ("not", FAILS_ALIKE))
        for number, line in enumerate(lines.values())
    ]
    marks = ["@pytest.mark.ranks(2, seed='same')\ndef test_same", "@pytest.mark.ranks(1)\ndef test_alone"]
    more = [f"{mark}():\n    torch.randn(3)\n    assert 0\n\n" for mark in marks]
    fixture = "@pytest.fixture\ndef drawn():\n    return torch.randn(3)\n\n"
    uses_it = "@pytest.mark.ranks(2)\ndef test_drew_it(drawn):\n    assert 0\n"
    ran = run("".join(["import random, numpy\n", *tests, *more, fixture, uses_it]))
    ran.result.assert_outcomes(failed=len(FAILS_AFTER) + len(FAILS_ALIKE) + 3)
    shown = re.split(r"^_+ (test_\w+) _+$", ran.screen, flags=re.MULTILINE)[1:]
    told = [name for name, text in zip(shown[::2], shown[1::2], strict=True) if "meant to draw the same:" in text]
    assert told == [f"test_drew_{number}" for number in range(len(FAILS_AFTER))] + ["test_drew_it"]
