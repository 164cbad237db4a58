"""What the day's suite runs of a product of parameters has every value of each."""

from __future__ import annotations

from itertools import product

import pytest

from tests.covering import covering, the_rest_at_night, thinned

PRODUCTS = """
    import pytest

    @pytest.fixture(params=["here", "there"])
    def place(request):
        return request.param

    @pytest.mark.parametrize("number", range(4))
    def test_product(place, number):
        pass

    @pytest.mark.parametrize("number", range(4))
    def test_each(number):
        pass

    @pytest.mark.parametrize("one, other", [(1, 1), (1, 2), (2, 2)])
    def test_pairs(one, other):
        pass

    def test_alone():
        pass
"""


@pytest.mark.parametrize("sizes", [(2, 17), (17, 2), (3, 3, 3), (1, 5), (4,)])
def test_every_value_is_there_in_as_few_cases_as_can_be(sizes: tuple[int, ...]) -> None:
    cases = list(product(*map(range, sizes)))
    kept = [cases[place] for place in covering(cases)]
    assert all({case[axis] for case in kept} == set(range(size)) for axis, size in enumerate(sizes))
    assert len(kept) == max(sizes)


def test_what_only_some_combinations_have_is_kept() -> None:
    assert covering([("a", 1), ("a", 2), ("b", 1)]) == [0, 1, 2]
    assert covering([]) == []


def test_a_product_runs_in_part_by_day_and_whole_by_night(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The one warns of an option, the other ends sessions that have come to an end, and this one only collects.
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:asyncio -p no:syrupy")
    items = pytester.getitems(PRODUCTS)
    the_rest_at_night(items)
    late = [item.name for item in items if item.get_closest_marker("nightly")]
    assert len(late) == 4
    assert {name.partition("[")[0] for name in late} == {"test_product"}


def test_of_cases_in_a_row_some_are_for_the_day() -> None:
    late = [case for case in thinned("abcde", 2) if not isinstance(case, str)]
    assert [case.values for case in late] == [("b",), ("d",)]
    assert all(mark.name == "nightly" for case in late for mark in case.marks)
    one, other, _ = thinned([("a", 1), ("b", 2), ("c", 3)], 2)
    assert one == ("a", 1)
    assert other.values == ("b", 2)
