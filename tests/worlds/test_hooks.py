"""Collectives that one rank alone makes, where another calls it back: a hook, a callback, its own part of a round."""

from __future__ import annotations

import linecache
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from rankdrill import World
from rankdrill.diagnosis import FindingKind

DEADLINE_S = 60.0


def by_a_hook_of_the_optimizer() -> None:
    model = DistributedDataParallel(nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def count_tokens(*_: object) -> None:
        dist.all_reduce(torch.tensor(100))  # odd

    if dist.get_rank() == 0:
        optimizer.register_step_post_hook(count_tokens)
    for _ in range(4):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()


def by_one_of_its_callbacks() -> None:
    def on_epoch_end() -> None:
        dist.all_reduce(torch.tensor(100))  # odd

    callbacks = [on_epoch_end] if dist.get_rank() == 0 else []
    gradient = torch.ones(8)
    for _ in range(2):
        for _ in range(3):
            dist.all_reduce(gradient)
        for callback in callbacks:
            callback()


class Loader:
    """Its ranks agree on the order of the data as each epoch begins."""

    def __iter__(self) -> Iterator[int]:
        dist.broadcast(torch.ones(3), src=0)
        yield from range(3)


def before_the_next_epoch_begins() -> None:
    loader = Loader()
    for _ in range(2):
        for _ in loader:
            dist.all_reduce(torch.ones(4))
        for step in range(2):
            if step == 0:
                dist.broadcast(torch.ones(2), src=0)
            if dist.get_rank() != 0:
                continue
            dist.all_gather([torch.ones(1) for _ in range(4)], torch.ones(1))  # odd


@pytest.mark.parametrize(
    "body",
    [by_a_hook_of_the_optimizer, by_one_of_its_callbacks, before_the_next_epoch_begins],
    ids=lambda f: f.__name__,
)
def test_it_is_one_call_more(four: World, body: Callable[[], None]) -> None:
    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.EXTRA, (0,)), outcome.summary()
    (site,) = finding.sides[0].sites
    assert site is not None
    assert linecache.getline(site.file, site.line).rstrip().endswith("# odd")


LIBRARY = """
import torch
import torch.distributed as dist

def train(callback):
    tensor = torch.ones(2)
    for step in range(4):
        dist.all_gather([torch.zeros(2) for _ in range(dist.get_world_size())], tensor)
        dist.all_reduce(tensor)
        callback(step)
"""


def test_what_a_library_calls_back_on_one_rank_is_one_call_more(four: World, tmp_path: Path) -> None:
    """The loop is the library's, and all its calls are made at one line of the user's."""
    place = tmp_path / "site-packages"
    place.mkdir()
    (place / "a_training_library.py").write_text(LIBRARY)

    def body() -> None:
        sys.path.insert(0, str(place))
        from a_training_library import train  # type: ignore[import-not-found]

        def callback(step: int) -> None:
            if step == 2 and dist.get_rank() == 0:
                dist.barrier()

        train(callback)

    (finding,) = four.run(body, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.EXTRA, (0,))
    assert [site.line for site in finding.sides[0].sites if site] == [body.__code__.co_firstlineno + 6]


def test_a_call_of_ddp_and_one_of_the_users_differ_in_more_than_their_dtype(two: World) -> None:
    def body() -> None:
        model = DistributedDataParallel(nn.Linear(8, 2))
        for _ in range(2):
            for _ in range(3):
                model(torch.ones(4, 8)).sum().backward()
            if dist.get_rank() == 0:
                dist.all_reduce(torch.tensor(3))

    outcome = two.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert finding.kind in (FindingKind.MISSING, FindingKind.EXTRA, FindingKind.CALL_ORDERING), outcome.summary()


def half_of_it(state, bucket):  # type: ignore[no-untyped-def]  # DDP reads its annotations, which are text here
    work = dist.all_reduce(bucket.buffer().half(), async_op=True)
    return work.get_future().then(lambda done: done.value()[0].float())


@pytest.mark.parametrize("hook", [half_of_it, default_hooks.fp16_compress_hook])
def test_a_hook_for_gradients_that_one_alone_has_makes_the_same_call_of_another_dtype(four: World, hook: Any) -> None:
    def body() -> None:
        model = DistributedDataParallel(nn.Linear(8, 2))
        if dist.get_rank() == 2:
            model.register_comm_hook(None, hook)
        for _ in range(2):
            model(torch.ones(4, 8)).sum().backward()

    (finding,) = four.run(body, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.DATATYPE, (2,))
    assert "with float16" in finding.sides[0].did
    assert "with float32" in finding.sides[1].did


def test_a_round_of_a_loop_that_one_leaves_early_is_left_out_still(four: World) -> None:
    """There is nothing that tells how many there are to be."""

    def body() -> None:
        for epoch in range(2):
            for _ in range(3 - (dist.get_rank() == 0 and epoch == 0)):
                dist.all_reduce(torch.ones(8))
            dist.all_reduce(torch.ones(1, dtype=torch.int64))

    (finding,) = four.run(body, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, (0,))


def sums_up_each_gradient_by_a_hook(late: Sequence[int] = ()) -> None:
    """Without waiting: of a weight that one rank has frozen it brings the next one's."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    under_way: list[Any] = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda each: under_way.append(dist.all_reduce(each.grad, async_op=True))
        )
    for step in range(6):
        if step == 3 and dist.get_rank() == 2:
            model[2].weight.requires_grad_(False)
        if step == 3 and dist.get_rank() in late:
            time.sleep(0.3)
        model(torch.ones(4, 8)).square().mean().backward()
        for work in under_way:
            work.wait()
        under_way.clear()
        model.zero_grad()
    dist.barrier()


def sums_up_before_any_other_does() -> None:
    """The others are refused where it showed, and never come to the next one: only the rounds before tell which."""
    sums_up_each_gradient_by_a_hook(late=(0, 1, 3))


def brings_a_wrong_size() -> None:
    works = [
        dist.all_reduce(torch.ones(count + (dist.get_rank() == 2 and count == 64)), async_op=True)
        for count in (1, 8, 64, 8, 64)
    ]
    for work in works:
        assert work is not None
        work.wait()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (sums_up_each_gradient_by_a_hook, FindingKind.MISSING),
        (sums_up_before_any_other_does, FindingKind.MISSING),
        (brings_a_wrong_size, FindingKind.SIZE),
    ],
)
def test_of_many_that_nobody_waits_for_one_is_left_out_or_wrong(
    four: World, body: Callable[[], None], kind: FindingKind
) -> None:
    (found,) = four.run(body, deadline=DEADLINE_S).findings
    assert (found.kind, found.culprits) == (kind, (2,))
