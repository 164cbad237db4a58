"""What a backward pass calls in a thread of the engine's own, as for a GPU, was called where the pass was begun.

There is no GPU here: a thread with no frame of Python's stands for the engine's.
"""

from __future__ import annotations

import _thread
import functools
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.boundary import callsites
from rankdrill.boundary.reducers import Buckets, named
from rankdrill.step import Contract, Site

PATIENCE_S = 60.0


def in_a_bare_thread(target: Callable[..., Any], *args: Any) -> Any:
    """What `target` gives, called where nothing of Python's is above it."""
    found: list[Any] = []
    _thread.start_new_thread(found.extend, (map(target, *([each] for each in args)),))
    end = time.monotonic() + PATIENCE_S
    while not found and time.monotonic() < end:
        time.sleep(0.001)
    return found[0]


def backward_with(hook: Callable[[], Any]) -> list[Any]:
    """What `hook` gives in the middle of a backward pass, and where that was begun."""
    found: list[Any] = []
    leaf = torch.ones(2, requires_grad=True)
    leaf.register_hook(lambda grad: found.append(hook()))  # type: ignore[no-untyped-call]
    torch.autograd.backward(leaf.sum())  # the pass
    return found


def the_pass() -> int:
    code = backward_with.__code__
    with open(code.co_filename) as file:
        return next(number for number, line in enumerate(file, 1) if "# the pass" in line)


@pytest.fixture(scope="module")
def one() -> Iterator[World]:
    with World(1) as world:
        yield world


@pytest.mark.parametrize("look", ["call_site", "plain_call_site"])
def test_the_line_is_that_of_the_pass(one: World, look: str) -> None:
    def body() -> list[tuple[int, str, str]]:
        sites = backward_with(lambda: in_a_bare_thread(getattr(callsites, look), 1))
        return [(site.line, site.function, site.via) for site in sites]

    assert one.run(body).unwrap() == [[(the_pass(), "backward_with", "backward")]]


@pytest.mark.parametrize("look", ["call_site", "plain_call_site"])
def test_a_pass_that_runs_in_another_one_was_begun_where_that_was(one: World, look: str) -> None:
    """As in a checkpoint that runs its own: the inner pass is in the engine's thread, with nothing of the user's."""

    def body() -> list[Any]:
        found: list[Any] = []
        inner = torch.ones(2, requires_grad=True)
        asked = functools.partial(next, map(found.append, map(getattr(callsites, look), [1])))
        inner.register_hook(asked)  # type: ignore[no-untyped-call]
        total = inner.sum()
        backward_with(lambda: in_a_bare_thread(torch.autograd.backward, total))
        return [(site.line, site.function) for site in found]

    assert one.run(body).unwrap() == [[(the_pass(), "backward_with")]]


@pytest.mark.parametrize("look", ["call_site", "plain_call_site"])
@pytest.mark.parametrize("depth", [0, 1, 5])
def test_outside_of_a_pass_there_is_none(look: str, depth: int) -> None:
    assert not callsites.passes
    assert in_a_bare_thread(getattr(callsites, look), depth) is None


def test_a_collective_of_that_thread_is_told_with_it(one: World) -> None:
    def body() -> None:
        backward_with(lambda: in_a_bare_thread(dist.all_reduce, torch.ones(3)))

    (rank,) = one.run(body).ranks
    (call,) = [record.step for record in rank.ledger if record.step.op == "all_reduce"]
    assert call.site is not None
    assert call.site.place == (__file__, the_pass())


def test_a_reducers_buckets_are_named_there(one: World) -> None:
    def body() -> list[Any]:
        buckets, line = Buckets(), Site("train.py", 3, "step")
        buckets.in_use = True
        contract = Contract(op="all_reduce", dtypes=("float32",))
        site_of = functools.partial(buckets.site_of, contract, line)
        return [site == named(line, 0) for site in backward_with(lambda: in_a_bare_thread(site_of, 1))]

    assert one.run(body).unwrap() == [[True]]


def test_a_pass_holds_nothing_once_it_is_over(one: World) -> None:
    def body() -> bool:
        gc.disable()
        leaf = torch.ones(2, requires_grad=True)
        result = leaf.exp().sum()
        gone = weakref.ref(result)
        torch.autograd.backward(result)
        del result
        return gone() is None and not callsites.passes

    assert one.run(body).unwrap() == [True]


@pytest.mark.parametrize("look", ["call_site", "plain_call_site"])
def test_a_function_of_the_users_that_runs_there_was_called_by_the_pass(one: World, look: str) -> None:
    def body() -> tuple[str, int, str]:
        def hook(_: int) -> Any:
            return getattr(callsites, look)(0)

        (site,) = backward_with(lambda: in_a_bare_thread(hook, 0))
        return site.function, site.caller.line, site.caller.function

    assert one.run(body).unwrap() == [("hook", the_pass(), "backward_with")]


@pytest.mark.parametrize("look", ["call_site", "plain_call_site"])
def test_a_thread_of_pythons_has_nothing_to_do_with_the_pass(one: World, look: str) -> None:
    def body() -> list[Any]:
        def hook() -> Any:
            found: list[Any] = []
            thread = threading.Thread(target=lambda: found.append(getattr(callsites, look)(0)))
            threading.Thread.__dict__["start"].__wrapped__(thread)  # with no line that handed it over
            thread.join()
            return found[0]

        (site,) = backward_with(hook)
        return [site.function, site.caller]

    assert one.run(body).unwrap() == [["<lambda>", None]]
