"""A store that asks again and again is as good as one that waits."""

from __future__ import annotations

import datetime
import threading
import time
from typing import Any

import pytest
import torch.distributed as dist

from rankdrill.gathers.network.polled_store import PolledStore


@pytest.fixture
def store() -> PolledStore:
    return PolledStore(dist.HashStore())  # type: ignore[attr-defined]


def test_it_waits_for_what_comes(store: PolledStore) -> None:
    threading.Timer(0.2, store.set, ("late", b"\0\xff")).start()
    assert not store.check(["late"])
    store.wait(["late"], datetime.timedelta(seconds=30))
    assert store.get("late") == b"\0\xff"
    assert [store.add("count", 2), store.add("count", 3)] == [2, 5]


def test_it_does_not_wait_longer_than_it_should(store: PolledStore) -> None:
    began = time.monotonic()
    with pytest.raises(dist.DistStoreError, match=r"0\.3 s still without .*never"):
        store.wait(["never"], datetime.timedelta(seconds=0.3))
    assert 0.3 <= time.monotonic() - began < 10


def test_gloo_connects_over_it_and_hears_its_errors(store: PolledStore) -> None:
    make: Any = dist.ProcessGroupGloo
    make(dist.PrefixStore("one", store), 0, 1, datetime.timedelta(seconds=30))  # type: ignore[attr-defined]
    with pytest.raises(dist.DistStoreError, match="still without"):
        make(dist.PrefixStore("two", store), 0, 2, datetime.timedelta(seconds=0.3))  # type: ignore[attr-defined]
