"""Programs that nobody has seen before, each with one mistake or none, on real ranks: the verdict is the mistake.

    python -m pytest -m nightly tests/properties/test_drawn_programs.py

draws two thousand, others each time. What fails is told with its source, the report and the truth.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.properties.drawn.drawing import Drawn, drawn_programs
from tests.properties.drawn.running import Told, Worlds, worlds

RIGHT = 0.95  # of the mistakes, told strictly right: kind, culprit, line, one finding
PATIENT = list(HealthCheck)  # that drawing is slow next to other tests says nothing


@pytest.fixture(scope="module")
def kept() -> Iterator[Worlds]:
    with worlds() as kept:
        yield kept


def told_of_all(drawings: int, kept: Worlds, *, derandomize: bool) -> list[Told]:
    """What was said of each; stops where a correct program is called wrong, or an innocent rank is blamed."""
    told: list[Told] = []

    @settings(
        max_examples=drawings,
        derandomize=derandomize,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=PATIENT,
    )
    @given(drawn_programs())
    def judge(drawn: Drawn) -> None:
        one = kept.told_of(drawn)
        assert not one.is_false_alarm, str(one)
        assert not one.blames_the_innocent, str(one)
        told.append(one)

    judge()
    return told


def assert_told_right(told: list[Told]) -> None:
    mistakes = [one for one in told if one.truth is not None]
    wrong = [one for one in mistakes if one.wrong_in]
    right = 1 - len(wrong) / len(mistakes)
    assert right >= RIGHT, f"{right:.3f} of {len(mistakes)}\n" + f"\n{'=' * 80}\n".join(map(str, wrong))


def test_drawn_programs(kept: Worlds) -> None:
    told = told_of_all(100, kept, derandomize=True)
    assert any(one.truth is None for one in told)
    assert_told_right(told)


@pytest.mark.nightly
def test_many_drawn_programs(kept: Worlds) -> None:
    assert_told_right(told_of_all(2000, kept, derandomize=False))
