"""One payload for each rank, fair and unfair; and sizes of worlds."""

from __future__ import annotations

import pickle
from typing import Any

import numpy
import pytest
import torch
from hypothesis import HealthCheck, Phase, find, given, seed, settings
from hypothesis import strategies as st

from rankdrill.errors import UsageError
from rankdrill_strategies import apart, big_payloads, per_rank, picklables, worlds
from rankdrill_strategies.big import edges
from tests.covering import thinned

quickly = settings(max_examples=1000, database=None, deadline=None, derandomize=True)
# How long drawing takes is for benchmarks/drawing.py to say: a busy machine is slow.
judged = settings(max_examples=30, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
some = settings(max_examples=150, database=None, deadline=None, derandomize=True, phases=[Phase.generate])


def _all(strategy: st.SearchStrategy[Any]) -> list[Any]:
    found: list[Any] = []
    some(given(strategy)(lambda drawn: found.append(drawn)))()
    return found


def test_every_rank_has_a_payload() -> None:
    assert {len(payloads) for payloads in _all(per_rank(st.integers(), 3))} == {3}


def test_the_world_size_may_be_drawn() -> None:
    assert {len(payloads) for payloads in _all(per_rank(st.integers()))} == {1, 2, 3, 4}
    assert {len(payloads) for payloads in _all(per_rank(st.integers(), st.sampled_from([2, 5])))} == {2, 5}


def test_some_ranks_have_nothing() -> None:
    # By identity: a big payload may be an array, which compares element by element.
    nothing = {
        sum(payload is None for payload in payloads) for payloads in _all(per_rank(st.integers(), 3, absent=True))
    }
    assert nothing == {0, 1, 2, 3}


def test_one_rank_has_a_big_payload_while_the_others_stay_small() -> None:
    ranks = set()
    for payloads in _all(per_rank(st.integers(), 3, uneven=True)):
        sizes = [len(pickle.dumps(payload, 5)) for payload in payloads]
        large = [rank for rank, size in enumerate(sizes) if size > 1000]
        assert len(large) <= 1
        ranks |= set(large)
    assert ranks == {0, 1, 2}


@pytest.mark.parametrize("switches", [{}, {"absent": False, "uneven": False}], ids=["unasked", "switched off"])
def test_of_somebodys_strategy_nothing_is_drawn_but_its_values(switches: dict[str, Any]) -> None:
    drawn = _all(per_rank(st.integers(), 3, **switches))
    assert all(type(payload) is int for payloads in drawn for payload in payloads)


def test_of_what_draws_anything_some_have_nothing_and_one_has_much() -> None:
    drawn = _all(per_rank(picklables(), 3))
    assert any(sum(payload is None for payload in payloads) >= 2 for payloads in drawn)
    assert any(len(pickle.dumps(payload, 5)) > 1 << 16 for payloads in drawn for payload in payloads)
    fair = _all(per_rank(picklables(big=False).map(lambda payload: [payload]), 3))
    assert all(type(payload) is list for payloads in fair for payload in payloads)


def test_what_is_big_may_be_given() -> None:
    drawn = _all(per_rank(st.integers(), 2, absent=False, big=st.just("big")))
    assert any("big" in payloads for payloads in drawn)
    assert all(type(payload) is int or payload == "big" for payloads in drawn for payload in payloads)


def test_it_shrinks_to_one_fair_rank() -> None:
    assert find(per_rank(st.integers()), lambda payloads: True, settings=quickly) == [0]
    assert find(per_rank(st.integers()), lambda payloads: len(payloads) > 1, settings=quickly) == [0, 0]
    one_absent = find(
        per_rank(st.integers(), 3, absent=True),
        lambda payloads: any(each is None for each in payloads),
        settings=quickly,
    )
    assert sorted(map(str, one_absent)) == ["0", "0", "None"]


def test_big_payloads_are_spread_over_sizes_and_kinds() -> None:
    drawn = _all(big_payloads(max_bytes=1 << 16))
    assert {type(payload) for payload in drawn} == {bytes, str, list, numpy.ndarray, torch.Tensor}
    pickled = [len(pickle.dumps(payload, 5)) for payload in drawn]
    assert {size.bit_length() for size in pickled} >= set(range(11, 17))
    assert min(pickled) > 900
    assert max(pickled) < 1.1 * (1 << 16)
    assert all(type(payload) in (bytes, str, list) for payload in _all(big_payloads(tensors=False, arrays=False)))


def test_big_payloads_end_where_buffers_do() -> None:
    drawn = _all(big_payloads(max_bytes=100_000, near=[5000]))
    sizes = {len(pickle.dumps(payload, 5)) for payload in drawn}
    for end in (4096, 5000, 100_000):
        assert {end - 1, end, end + 1} & sizes, end
    assert {5000, 100_000} <= sizes


@pytest.mark.parametrize("protocol", [4, 5])
def test_payloads_at_edges_pickle_to_a_power_of_two_and_a_byte_beside(protocol: int) -> None:
    missed = {
        len(pickle.dumps(payload, protocol)) - (1 << power) for payload in _all(edges()) for power in range(6, 17)
    }
    assert {-1, 0, 1} <= missed
    sizes = {len(pickle.dumps(payload, protocol)) for payload in _all(edges())}
    assert {4095, 4096, 4097} <= sizes


def test_a_big_payload_shrinks_to_a_kibibyte_of_bytes() -> None:
    smallest = find(big_payloads(), lambda payload: True, settings=quickly)
    assert type(smallest) is bytes
    assert len(smallest) == 1024


def test_worlds_have_every_size_in_bounds() -> None:
    assert set(_all(worlds())) == {1, 2, 3, 4}
    assert set(_all(worlds(min_ranks=2, max_ranks=3))) == {2, 3}


def test_half_the_worlds_are_small_however_big_they_may_be() -> None:
    # With something beside it, for Hypothesis draws no example twice.
    drawn = [size for size, _ in _all(st.tuples(worlds(max_ranks=64), st.binary(min_size=8)))]
    assert sum(size <= 4 for size in drawn) > len(drawn) / 3
    assert max(drawn) > 32


def test_worlds_shrink_to_the_fewest_ranks() -> None:
    assert find(worlds(), lambda size: True, settings=quickly) == 1
    assert find(worlds(min_ranks=2, max_ranks=64), lambda size: True, settings=quickly) == 2
    assert find(worlds(max_ranks=64), lambda size: size > 7, settings=quickly) == 8


def _wrong(value: Any) -> Any:
    """Hide from the type checker what it would refuse."""
    return value


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: worlds(min_ranks=0), "min_ranks=0 is out of range; give at least 1"),
        (lambda: worlds(max_ranks=_wrong(1.5)), "max_ranks=1.5 is no count"),
        (lambda: worlds(min_ranks=3, max_ranks=2), "min_ranks=3 is above max_ranks=2; .* swap them"),
        (lambda: per_rank(_wrong(3)), r"strategy=3 is no Hypothesis strategy; for a fixed value give st.just\(...\)"),
        (lambda: per_rank(st.none(), 0), "world_size=0 is out of range; give at least 1"),
        (lambda: per_rank(st.none(), True), "world_size=True is no count"),
        (lambda: per_rank(st.none(), 2, absent=_wrong(1)), "absent=1 is no switch"),
        (lambda: per_rank(st.none(), 2, uneven=_wrong(1)), "uneven=1 is no switch"),
        (lambda: per_rank(st.none(), 2, big=_wrong(1 << 20)), "big=1048576 is no Hypothesis strategy"),
        (lambda: big_payloads(max_bytes=10), "max_bytes=10 is out of range; give at least 1024"),
        (lambda: big_payloads(tensors=_wrong(0)), "tensors=0 is no switch"),
    ],
)
def test_bad_arguments_are_refused_at_once(make: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make()


def test_a_drawn_world_size_is_checked_too() -> None:
    with pytest.raises(UsageError, match="world_size=0 is out of range"):
        find(per_rank(st.none(), st.just(0)), lambda payloads: True, settings=quickly)


@pytest.mark.skipif(apart._UNIQUE is None, reason="this Hypothesis has nothing that keeps it from copying")
def test_what_one_rank_has_is_not_copied_from_another() -> None:
    alike = []

    @seed(0)
    @settings(max_examples=200, database=None, deadline=None)
    @given(per_rank(st.integers(0, 1 << 62), 2, absent=False, uneven=False))
    def look(payloads: list[int]) -> None:
        alike.append(payloads[0] == payloads[1])

    look()
    assert len(alike) >= 200
    assert sum(alike) < 20  # of so many numbers; 115 where Hypothesis copies


@pytest.mark.parametrize("number", thinned(range(5), 4))
@pytest.mark.parametrize("big", [False, True])
def test_hypothesis_has_nothing_against_payloads_for_eight_ranks(big: bool, number: int) -> None:
    seen = []

    @seed(number)
    @judged
    @given(per_rank(picklables(big=big), 8))
    def draw(payloads: list[Any]) -> None:
        seen.append(len(payloads))

    draw()
    assert set(seen) == {8}
    assert len(seen) >= 30
