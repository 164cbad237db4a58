"""Counts that were announced, and what is then sent and received."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rankdrill.boundary.announced import Announced


def noted(told: Any, heard: Any, members: int = 3, **more: Any) -> Announced:
    announced = Announced()
    announced.note("all_to_all_single", {"tensors": told, "outputs": heard, **more}, members, 0)
    return announced


TOLD, HEARD = torch.tensor([1, 2, 3]), torch.tensor([4, 0, 1])


def test_what_was_announced_is_as_it_should_be_there_and_back() -> None:
    announced = noted(TOLD, HEARD)
    assert announced.unlike((1, 2, 3), (4, 0, 1)) == ""
    assert announced.unlike((4, 0, 1), (1, 2, 3)) == ""


@pytest.mark.parametrize(("sent", "received"), [((1, 2, 2), (4, 0, 1)), ((1, 2, 3), (1, 2, 3))])
def test_anything_else_is_shown_beside_what_was_announced(sent: tuple[int, ...], received: tuple[int, ...]) -> None:
    assert noted(TOLD, HEARD).unlike(sent, received) == "where sent 1,2,3 received 4,0,1 were announced"


def test_what_has_been_heard_is_looked_at_when_it_is_there() -> None:
    heard = torch.zeros(3, dtype=torch.int64)
    announced = noted(TOLD, heard)
    heard.copy_(HEARD)
    assert announced.unlike((1, 2, 3), (4, 0, 1)) == ""


def test_what_is_kept_is_what_was_heard_whatever_becomes_of_it() -> None:
    heard = HEARD.clone()
    announced = noted(TOLD, heard)
    announced.keep()
    heard[1] += 1
    assert announced.unlike((1, 2, 3), (4, 0, 1)) == ""
    assert announced.unlike((1, 2, 3), (4, 1, 1)) == "where sent 1,2,3 received 4,0,1 were announced"


@pytest.mark.parametrize(
    ("told", "heard", "more"),
    [
        pytest.param(TOLD.float(), HEARD, {}, id="no whole numbers"),
        pytest.param(torch.ones(6, dtype=torch.int64), torch.ones(6, dtype=torch.int64), {}, id="several for each"),
        pytest.param(TOLD, HEARD, {"input_splits": [3, 0, 0]}, id="split"),
        pytest.param(TOLD.to("meta"), HEARD, {}, id="on a device"),
        pytest.param([TOLD], [HEARD], {}, id="in a list"),
    ],
)
def test_what_is_no_exchange_of_counts_says_nothing(told: Any, heard: Any, more: dict[str, Any]) -> None:
    assert noted(told, heard, **more).unlike((9, 9, 9), (9, 9, 9)) == ""


def test_even_exchanges_are_compared_with_nothing() -> None:
    assert noted(TOLD, HEARD).unlike((), ()) == ""


ROWS = [torch.tensor([0, 4, 9]), TOLD, torch.tensor([7, 1, 8])]


@pytest.mark.parametrize(
    ("op", "told", "heard"),
    [("all_gather", [TOLD], [ROWS]), ("all_gather_into_tensor", TOLD, torch.cat(ROWS))],
)
def test_counts_that_were_gathered_are_announced_too(op: str, told: Any, heard: Any) -> None:
    announced = Announced()
    announced.note(op, {"tensors": told, "outputs": heard}, 3, 1)
    assert announced.unlike((1, 2, 3), (4, 2, 1)) == ""
    assert announced.unlike((1, 2, 2), (4, 2, 1)) == "where sent 1,2,3 received 4,2,1 were announced"


@pytest.mark.parametrize(
    ("told", "heard"),
    [
        (TOLD.float(), torch.cat(ROWS)),
        (TOLD, torch.zeros(3, dtype=torch.int64)),
        ([TOLD], [ROWS[:2]]),
        ([TOLD] * 2, ROWS),
    ],
)
def test_a_gather_of_anything_else_says_nothing(told: Any, heard: Any) -> None:
    announced = Announced()
    announced.note("all_gather", {"tensors": told, "outputs": heard}, 3, 1)
    assert announced.unlike((9, 9, 9), (9, 9, 9)) == ""
