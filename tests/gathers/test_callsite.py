"""Which two places in a program can be one call."""

from __future__ import annotations

import pytest

from rankdrill.gathers.agreement.callsite import FRAMES_SENT, CallPlace, capture


def places(branch: int, *, skip: bool = False) -> list[CallPlace]:
    """Captures at several places; which ones depends on `branch`, as on a rank."""
    seen = []
    if not skip:
        seen.append(capture())
    if branch == 0:
        seen.append(capture())
    else:
        seen.append(capture())
    for _ in range(2):
        if branch == 0:
            seen.append(capture())
            continue
        seen.append(capture())
    return seen


def test_the_same_place_is_one_call() -> None:
    first, second = (places(0)[0] for _ in range(2))
    assert not first.comes_after_or_before(second)


def test_branches_that_exclude_each_other_are_one_call() -> None:
    mine, others = (places(branch) for branch in (0, 1))
    assert mine[1].frames != others[1].frames
    for one, other in zip(mine[1:], others[1:], strict=True):
        assert not one.comes_after_or_before(other)


@pytest.mark.parametrize("branch", [0, 1])
def test_a_place_that_the_other_leads_to_is_another_call(branch: int) -> None:
    mine, others = (places(branch) for _ in range(1)), places(1 - branch)
    (own,) = mine
    assert own[0].comes_after_or_before(others[1])
    assert own[1].comes_after_or_before(others[0])
    assert own[1].comes_after_or_before(others[2])


def test_turns_of_a_loop_cannot_be_told_apart() -> None:
    own = places(0)
    assert not own[2].comes_after_or_before(own[3])


def test_exits_separate() -> None:
    def early(flag: bool) -> CallPlace:
        if flag:
            return capture()
        return capture()

    first, second = (early(flag) for flag in (True, False))
    assert first.frames != second.frames
    assert not first.comes_after_or_before(second)


def test_the_site_is_file_and_line_of_the_caller() -> None:
    place = capture()
    assert "test_callsite.py:" in place.site
    assert len(place.frames) == len(place.codes) <= FRAMES_SENT


def test_a_helper_shows_who_called_it() -> None:
    assert "called from line" in places(0)[0].site


def test_deep_stacks_and_strangers() -> None:
    def deep(levels: int) -> CallPlace:
        return deep(levels - 1) if levels else capture()

    assert len(deep(40).frames) == FRAMES_SENT
    assert not deep(40).comes_after_or_before(CallPlace("?", 3, ((1, 2),)))
