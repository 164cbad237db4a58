"""Where all ranks are at one line of the user's, that called a library, the library's lines tell where they parted."""

from __future__ import annotations

import importlib
import json
import linecache
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.boundary import callsites
from rankdrill.diagnosis import Finding, FindingKind
from rankdrill.step import Site

BOUND_S = 30.0
TRAINER = """import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, logs=True, saves=False, seen=None):
        self.logs, self.saves, self.seen = logs, saves, seen

    def fit(self, batches):
        for batch in batches:  # each batch
            self.step(batch)
        self.finish()

    def step(self, batch):
        loss = torch.ones(2) * batch
        dist.all_reduce(loss)  # reduced
        if self.seen is not None:
            self.seen(loss)
        if self.logs:  # asked
            self.log(loss)

    def log(self, loss):
        dist.reduce(loss, 0)  # logged

    def finish(self):
        if self.saves:
            dist.barrier()  # saved
        dist.barrier()  # finished
        dist.broadcast(torch.ones(1), 0)  # shared

    def fit_and_evaluate(self, evals):
        for epoch in range(3):
            for batch in range(3):
                dist.broadcast(torch.ones(3), 0)  # trained
            for batch in range(evals):
                dist.barrier()  # evaluated

    def fit_model(self, model):
        for epoch in range(3):
            model(torch.ones(2, 4)).sum().backward()  # trained
            if self.seen is not None:
                self.seen(torch.ones(1))

    def evaluate(self, model):
        with torch.no_grad():
            model(torch.ones(2, 4))

    def fit_whatever_fails(self, model):
        for epoch in range(3):
            try:
                dist.broadcast(torch.zeros(1), 0)  # signalled
            except Exception:
                pass
            model(torch.ones(2, 4)).sum().backward()
            if self.seen is not None:
                self.seen(torch.ones(1))
"""
"""Of a package that is installed, and not the user's."""


def trainers(installed: str) -> Any:
    sys.path.insert(0, installed)
    try:
        return importlib.import_module("a_trainer_of_others").Trainer
    finally:
        sys.path.remove(installed)


def has_fewer_batches(installed: str) -> None:
    trainers(installed)().fit(range(3 if dist.get_rank() == 1 else 4))  # fit


def does_not_log(installed: str) -> None:
    trainers(installed)(logs=dist.get_rank() != 1).fit(range(3))  # fit


def saves_besides(installed: str) -> None:
    trainers(installed)(saves=dist.get_rank() == 1).fit(range(2))  # fit


def all_do_the_same(installed: str) -> None:
    trainers(installed)().fit(range(3))


def reduces_in_a_callback(installed: str) -> None:
    def seen(loss: torch.Tensor) -> None:
        if dist.get_rank() == 1:
            dist.broadcast(loss, 1)  # callback

    trainers(installed)(seen=seen).fit(range(2))  # fit


def reduces_in_a_callback_of_its_own(installed: str) -> None:
    """Nothing says that it is for one rank alone."""
    turns = [3, 1, 3][dist.get_rank()]

    def seen(loss: torch.Tensor) -> None:
        nonlocal turns
        turns -= 1
        if not turns:
            dist.broadcast(loss, 1)  # callback

    trainers(installed)(seen=seen).fit(range(2))  # fit


def saves_behind_a_question(installed: str) -> None:
    trainer = trainers(installed)()
    trainer.fit(range(1))
    if dist.get_rank() == 1:
        trainer.finish()  # asked for its rank
    trainer.step(1)  # goes on


def evaluates_more(installed: str) -> None:
    trainers(installed)().fit_and_evaluate(3 if dist.get_rank() == 1 else 1)  # fit


def evaluates_alone(installed: str) -> None:
    trainers(installed)().fit_and_evaluate(3 if dist.get_rank() == 1 else 0)  # fit


def reduces_where_all_failures_are_caught(installed: str) -> None:
    def seen(loss: torch.Tensor) -> None:
        dist.all_reduce(loss)  # callback

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    trainers(installed)(seen=seen if dist.get_rank() == 1 else None).fit_whatever_fails(model)  # fit


def evaluates_in_a_callback(installed: str) -> None:
    """The buffers of a model that evaluates meet what the others' backward pass sets up: other dtypes, by chance."""
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2))
    )

    trainer = trainers(installed)()

    def seen(loss: torch.Tensor) -> None:
        trainer.evaluate(model)  # callback

    trainers(installed)(seen=seen if dist.get_rank() == 1 else None).fit_model(model)  # fit


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("lib") / "site-packages"
    folder.mkdir()
    (folder / "a_trainer_of_others.py").write_text(TRAINER)
    return str(folder)


@pytest.fixture(scope="module")
def three() -> Iterator[World]:
    with World(3) as world:
        yield world


def found_in(world: World, body: Callable[[str], None], installed: str) -> Finding:
    outcome = world.run(body, installed, deadline=BOUND_S)
    (finding,) = outcome.findings
    return finding


def mark(site: Site | None) -> str:
    return "" if site is None else linecache.getline(site.file, site.line).rstrip().rpartition("# ")[2]


def marks(finding: Finding) -> list[tuple[str, str]]:
    """Behind the user's line of each side, and the library's."""
    return [(mark(side.sites[0]), mark(side.within[0]) if side.within else "") for side in finding.sides]


@pytest.mark.parametrize(
    ("body", "kind", "told"),
    [
        (
            has_fewer_batches,
            FindingKind.MISSING,
            [("fit", "reduced"), ("each batch", ""), ("fit", "finished"), ("fit", "reduced")],
        ),
        (
            does_not_log,
            FindingKind.MISSING,
            [("fit", "logged"), ("asked", ""), ("fit", "reduced"), ("fit", "logged")],
        ),
        (saves_besides, FindingKind.EXTRA, [("fit", "saved"), ("fit", "finished"), ("fit", "shared")]),
        (reduces_in_a_callback, FindingKind.EXTRA, [("callback", ""), ("fit", "")]),
        (reduces_in_a_callback_of_its_own, FindingKind.EXTRA, [("callback", ""), ("fit", "")]),
    ],
)
def test_the_line_of_the_library_at_which_they_parted_is_told_beside_the_users(
    three: World, installed: str, body: Callable[[str], None], kind: FindingKind, told: list[tuple[str, str]]
) -> None:
    finding = found_in(three, body, installed)
    assert (finding.kind, finding.culprits) == (kind, (1,))
    assert marks(finding) == told
    assert finding.sides[0].sites[0] is not None
    assert finding.sides[0].sites[0].file == __file__


def test_the_report_says_by_way_of_which_line(three: World, installed: str) -> None:
    first, others = found_in(three, has_fewer_batches, installed).lines
    assert "in has_fewer_batches, by way of a_trainer_of_others.py:16 in step, goes past it by the end of" in first
    assert "`for batch in batches`, at a_trainer_of_others.py:10 in fit" in first
    assert others.endswith("in has_fewer_batches, by way of a_trainer_of_others.py:16 in step")


def test_so_does_the_report_as_fields(three: World, installed: str) -> None:
    outcome = three.run(saves_besides, installed, deadline=BOUND_S)
    (finding,) = json.loads(outcome.to_json())["findings"]
    (within,) = finding["sides"][0]["within"]
    assert (within["file"], within["function"]) == ("a_trainer_of_others.py", "finish")
    assert within["called_from"]["function"] == "fit"
    assert within["called_from"]["called_from"]["function"] == "saves_besides"


@pytest.mark.parametrize("body", [reduces_in_a_callback, saves_behind_a_question])
def test_of_two_ranks_the_one_that_was_asked_for_its_rank_makes_one_call_more(
    two: World, installed: str, body: Callable[[str], None]
) -> None:
    finding = found_in(two, body, installed)
    assert (finding.kind, finding.culprits) == (FindingKind.EXTRA, (1,))
    assert mark(finding.sides[0].sites[0]) in ("callback", "asked for its rank")


def test_of_two_ranks_at_odds_within_a_library_both_lines_are_told(two: World, installed: str) -> None:
    finding = found_in(two, has_fewer_batches, installed)
    assert not finding.culprits
    assert sorted(marks(finding)) == [("fit", "finished"), ("fit", "reduced")]


def test_who_evaluates_once_more_makes_one_call_more(three: World, installed: str) -> None:
    finding = found_in(three, evaluates_more, installed)
    assert (finding.kind, finding.culprits) == (FindingKind.EXTRA, (1,))
    assert marks(finding) == [("fit", "evaluated"), ("fit", "trained")]


@pytest.mark.parametrize("body", [evaluates_more, evaluates_alone])
def test_of_two_ranks_one_of_which_evaluates_more_nobody_is_blamed(
    two: World, installed: str, body: Callable[[str], None]
) -> None:
    finding = found_in(two, body, installed)
    assert not finding.culprits
    assert sorted(marks(finding)) == [("fit", "evaluated"), ("fit", "trained")]


def test_what_a_trainer_goes_on_with_after_a_failure_is_not_what_failed(three: World, installed: str) -> None:
    finding = found_in(three, reduces_where_all_failures_are_caught, installed)
    assert finding.culprits == (1,)
    others = [side for side in finding.sides if side.ranks == (0, 2)]
    assert {mark(site) for side in others for site in side.sites} == {"fit"}
    assert {mark(site) for side in others for site in side.within} <= {"signalled"}
    assert all(" enter broadcast #" in str(side) for side in others)


def test_a_call_on_top_that_differs_in_its_dtype_too_is_one_on_top(three: World, installed: str) -> None:
    finding = found_in(three, evaluates_in_a_callback, installed)
    assert (finding.kind, finding.culprits) == (FindingKind.EXTRA, (1,))
    assert mark(finding.sides[0].sites[0]) == "callback"


def test_what_is_right_stays_right(three: World, installed: str) -> None:
    outcome = three.run(all_do_the_same, installed, deadline=BOUND_S)
    assert outcome.ok
    assert not outcome.findings


class Backend:
    def mean(self, value: torch.Tensor) -> None:
        dist.all_reduce(value)  # backend

    def fence(self) -> None:
        dist.barrier()


class Layer:
    """One of the layers of a program's own, each of which hands on to the next."""

    def __init__(self, below: Any) -> None:
        self.below = below

    def mean(self, value: torch.Tensor) -> None:
        self.below.mean(value)

    def fence(self) -> None:
        self.below.fence()


def layered(steps: Callable[[Any, int], None], layers: int) -> None:
    backend: Any = Backend()
    for _ in range(layers):
        backend = Layer(backend)
    for step in range(3):
        steps(backend, step)
    backend.fence()


def logs_besides(backend: Any, step: int) -> None:
    backend.mean(torch.ones(4))
    if dist.get_rank() == 1 and step == 1:
        backend.mean(torch.ones(1))  # the mistake
    backend.fence()


def skips_one(backend: Any, step: int) -> None:
    if dist.get_rank() != 1 or step != 1:
        backend.mean(torch.ones(4))  # the mistake
    backend.mean(torch.ones(4))
    backend.fence()


@pytest.mark.parametrize("layers", [0, 1, 4, 9])
@pytest.mark.parametrize(("steps", "kind"), [(logs_besides, FindingKind.EXTRA), (skips_one, FindingKind.MISSING)])
def test_a_call_is_known_through_layers_of_the_users_own(
    three: World, steps: Callable[[Any, int], None], kind: FindingKind, layers: int
) -> None:
    (finding,) = three.run(layered, steps, layers, deadline=BOUND_S).findings
    assert (finding.kind, finding.culprits) == (kind, (1,))
    lines = [mark(each) for each in _outward(finding.sides[0].sites[0])]
    assert lines[0] == "backend"
    assert "the mistake" in lines


@pytest.mark.parametrize("find", [callsites.call_site, callsites.plain_call_site], ids=["C", "Python"])
def test_a_site_keeps_the_lines_of_libraries_beside(installed: str, find: Callable[..., Site | None]) -> None:
    trainer = trainers(installed)(logs=False)
    found: list[Site | None] = []

    def seen(loss: object) -> None:
        found.append(find(0))

    trainer.seen = seen
    trainer.step = lambda batch: type(trainer).step(trainer, batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_reduce", seen)
        patch.setattr(dist, "barrier", lambda: None)
        patch.setattr(dist, "broadcast", lambda *_: None)
        trainer.fit([1])  # called
    site = found[0]
    assert site is not None
    assert [each.function for each in _outward(site)][:3] == [
        "seen",
        "<lambda>",
        "test_a_site_keeps_the_lines_of_libraries_beside",
    ]
    whole = [each.function for each in _outward(site.whole)]
    assert whole[:5] == ["seen", "step", "<lambda>", "fit", "test_a_site_keeps_the_lines_of_libraries_beside"]


def _outward(site: Site | None) -> Iterator[Site]:
    while site is not None:
        yield site
        site = site.caller
