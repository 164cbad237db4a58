"""What a rank writes into its files in other orders of messages is compared, and written by the rank alone."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from tests.worlds.test_other_orders import DEADLINE_S, EARLY_S, name_of, received, sent

Body = Callable[[Path], Any]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(4) as made:
        yield made


def saved_as_they_come(path: Path) -> None:
    if dist.get_rank():
        sent()
    else:
        torch.save(torch.stack([each.clone() for each in received()]), path)


def pickled_as_they_come(path: Path) -> None:
    if dist.get_rank():
        sent()
        return
    values = [each[0].item() for each in received()]
    with path.open("wb") as file:
        pickle.dump({"values": values}, file)


def written_as_they_come(path: Path) -> None:
    if dist.get_rank():
        sent()
    else:
        path.write_text(json.dumps([each[0].item() for each in received()]))


def the_last_is_written(path: Path) -> None:
    if dist.get_rank():
        sent()
        return
    last = list(received())[-1]
    with open(path, "w") as file:
        file.write(f"last: {last[0].item():.2f}\n")


@pytest.mark.parametrize(
    "body", [saved_as_they_come, pickled_as_they_come, written_as_they_come, the_last_is_written], ids=name_of
)
def test_where_it_matters(world: World, tmp_path: Path, body: Body) -> None:
    outcome = world.run(body, tmp_path / "result", deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.RACE, (0,))
    assert "would have written something else into result, had they come in another order" in str(finding)
    assert outcome.elapsed < EARLY_S
    assert [each.name for each in tmp_path.iterdir()] == ["result"]


def test_what_is_written_is_the_ranks_own(world: World, tmp_path: Path) -> None:
    world.run(written_as_they_come, tmp_path / "result", deadline=DEADLINE_S)
    assert sorted(json.loads((tmp_path / "result").read_text())) == [1.0, 2.0, 3.0]


def a_mean_is_saved(path: Path) -> None:
    if dist.get_rank():
        sent(0.1 * dist.get_rank())
    else:
        torch.save({"mean": torch.stack([each.clone() for each in received()]).mean(0), "step": 3}, path)


def a_sum_is_written(path: Path) -> None:
    if dist.get_rank():
        sent(0.1 * dist.get_rank())
    else:
        total = torch.zeros(2)
        for each in received():
            total += each
        path.write_text(f"sum {total[0].item()!r} of 3")


def lines_that_say_whose_they_are(path: Path) -> None:
    if dist.get_rank():
        sent()
        return
    with path.open("w") as file:
        for _ in range(3):
            message = torch.zeros(2)
            source = dist.recv(message)
            print(source, message[0].item(), file=file)


def by_sender(path: Path) -> None:
    if dist.get_rank():
        sent()
        return
    found, message = {}, torch.zeros(2)
    for _ in range(3):
        source = dist.recv(message)
        found[source] = message[0].item()
    with path.open("w") as file:
        json.dump(found, file)


def logged_as_they_come(path: Path) -> float:
    if dist.get_rank():
        return sent()
    total = 0.0
    with path.open("a") as log:
        for each in received():
            log.write(f"got {each[0].item()}\n")
            log.flush()
            total += each[0].item()
    return total


def kept_in_a_file_of_each(path: Path) -> None:
    if dist.get_rank():
        sent()
        return
    for each in received():
        torch.save(each, path.with_name(f"from-{int(each[0])}"))


@pytest.mark.parametrize(
    "body",
    [
        a_mean_is_saved,
        a_sum_is_written,
        lines_that_say_whose_they_are,
        by_sender,
        logged_as_they_come,
        kept_in_a_file_of_each,
    ],
    ids=name_of,
)
def test_where_it_does_not(world: World, tmp_path: Path, body: Body) -> None:
    outcome = world.run(body, tmp_path / "result", deadline=DEADLINE_S)
    assert outcome.findings == ()
    outcome.unwrap()
