"""Where torch's options lie is found by looking; what is not found for sure is not read."""

from __future__ import annotations

import builtins
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist
from torch._C import _distributed_c10d as c

from rankdrill.boundary import options_seam
from rankdrill.boundary.options_seam import NOWHERE, OPTIONS, Places, places_of

FIELDS = {"asynchronous": "asyncOp", "reduction": "reduceOp", "root": "rootRank", "timeout": "timeout"}


@pytest.fixture(autouse=True)
def _found_anew() -> Any:
    options_seam._places_in.cache_clear()
    yield
    options_seam._places_in.cache_clear()


@pytest.mark.parametrize("op", OPTIONS)
def test_all_that_this_torch_has_is_found(op: str) -> None:
    places = places_of(op)
    assert places.options is getattr(c, OPTIONS[op])
    for place, field in FIELDS.items():
        assert (getattr(places, place) != NOWHERE) == hasattr(places.options, field), (
            f"torch lays {places.options.__name__}.{field} out in another way: the watch asks for it, and is slower"
        )


def test_what_is_read_is_what_was_put() -> None:
    places = places_of("reduce")
    for root, op, milliseconds in ((4, dist.ReduceOp.MAX, 9), (0, dist.ReduceOp.SUM, 86_400_000)):
        made: Any = dist.ReduceOptions()
        made.rootRank, made.reduceOp, made.timeout = root, op, timedelta(milliseconds=milliseconds)
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            lying = options_seam._lying_in(memory.fileno(), made)
        assert int.from_bytes(lying[places.root : places.root + 8], "little") == root
        assert lying[places.reduction] == hash(made.reduceOp)
        assert int.from_bytes(lying[places.timeout : places.timeout + 8], "little") == milliseconds


def test_two_places_that_show_it_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    lying = options_seam._lying_in
    monkeypatch.setattr(options_seam, "_lying_in", lambda memory, options: lying(memory, options)[:64] * 2)
    assert places_of("all_reduce") == Places(dist.AllreduceOptions, *[NOWHERE] * 4)


def test_where_nothing_can_be_read_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(builtins, "open", refuse)
    assert places_of("broadcast") == Places(dist.BroadcastOptions, *[NOWHERE] * 4)


def test_other_options_are_asked_for() -> None:
    assert places_of("monitored_barrier") == Places(type(None), *[NOWHERE] * 4)
