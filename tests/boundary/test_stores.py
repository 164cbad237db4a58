"""Calls of stores are steps where a user makes them, known by one key on whichever way they reach it."""

from __future__ import annotations

import linecache
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.elastic.utils import store as elastic

from rankdrill.boundary.stores import MOST_KEYS
from rankdrill.ledger import Record
from rankdrill.step import Kind
from tests.faults.here import Here, rank_here
from tests.torch_can import end_group

WAIT = timedelta(milliseconds=50)


@pytest.fixture
def here() -> Iterator[Here]:
    with rank_here() as rank:
        yield rank


def file_store(path: Path) -> Any:
    return dist.FileStore(str(path / "store"), 1)  # type: ignore[attr-defined]


def records(here: Here) -> list[Record]:
    return [record for record in here.view if record.step.kind is Kind.STORE]


def steps(here: Here) -> list[tuple[str, str, str]]:
    return [(record.step.op, record.step.target, record.step.fingerprint) for record in records(here)]


def test_what_is_called_and_with_which_key(here: Here, tmp_path: Path) -> None:
    store = file_store(tmp_path)
    store.set("name", "value")
    store.get("name")
    store.add("count", 2)
    store.wait(["name"], timedelta(seconds=7))
    store.check(["name"])
    store.compare_set("name", "value", "other")
    store.delete_key("name")
    told = f"FileStore {tmp_path}/store"[:64]
    shown = [(op, key) for op, key, _ in steps(here)]
    assert shown == [
        ("set", "name"),
        ("get", "name"),
        ("add", "count"),
        ("wait", "name"),
        ("check", "name"),
        ("compare_set", "name"),
        ("delete_key", "name"),
    ]
    fingerprints = [fingerprint for _, _, fingerprint in steps(here)]
    assert [fingerprints[at] for at in (0, 2, 5)] == ["'value'", "+2", "'value' to 'other'"]
    assert all(told.startswith(fingerprints[at].rstrip("…")) for at in (1, 3, 4, 6))
    assert [record.patience_ms for record in records(here)] == [0, 300_000, 0, 7_000, 0, 0, 0]
    sites = [record.step.site for record in records(here)]
    assert all(site and linecache.getline(__file__, site.line).strip().startswith("store.") for site in sites)


def test_one_key_by_several_ways(here: Here, tmp_path: Path) -> None:
    plain = file_store(tmp_path)
    plain.set("a/b/key", "1")
    PrefixStore("a", PrefixStore("ignored", plain).underlying_store).get("b/key")
    prefixed = PrefixStore("b", PrefixStore("a", plain))
    assert plain.check(["b/a/key"]) is False
    prefixed.set("key", "2")
    found = {record.step.target: record.step.digest for record in records(here)}
    assert len(set(found.values())) == len(found)
    first, second = records(here)[:2]
    assert (first.step.target, first.step.digest) == (second.step.target, second.step.digest)


def test_another_store_has_other_keys(here: Here, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    file_store(tmp_path).set("key", "1")
    file_store(tmp_path / "other").set("key", "1")
    for _ in range(2):
        dist.HashStore().set("key", "1")  # type: ignore[attr-defined]
    assert {record.step.target for record in records(here)} == {"key"}
    assert len({record.step.digest for record in records(here)}) == 4


def test_all_keys_of_a_call(here: Here, tmp_path: Path) -> None:
    store = file_store(tmp_path)
    store.set("b", "1")
    with pytest.raises(RuntimeError):
        store.wait(["b", "a"], WAIT)
    assert [record.step.target for record in records(here)] == ["b", "a", "b"], "what is not there comes first"
    assert [record.error for record in records(here)] == ["", "RuntimeError", "RuntimeError"]
    store.multi_set([f"many/{number}" for number in range(100)], ["x"] * 100)
    assert len(records(here)) == 3 + 1 + MOST_KEYS
    assert all(record.end_ns for record in records(here))


def test_values_read_alike_if_they_are_equal(here: Here, tmp_path: Path) -> None:
    store = file_store(tmp_path)
    for value in ("x", b"x", "y" * 100, b"y" * 100, "y" * 101):
        store.set("key", value)
    told = [fingerprint for _, _, fingerprint in steps(here)]
    assert told[0] == told[1] == "'x'"
    assert told[2] == told[3] != told[4]
    assert told[2].startswith("100 bytes ")


def test_what_torch_does_for_itself_is_no_step(here: Here, tmp_path: Path) -> None:
    store = file_store(tmp_path)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    dist.barrier()
    dist.new_group([0])
    end_group()
    assert records(here) == []


def test_what_torch_has_for_users_is(here: Here, tmp_path: Path) -> None:
    elastic.barrier(file_store(tmp_path), 1, "saved", barrier_timeout=30)  # here
    assert records(here)
    for record in records(here):
        assert record.step.site is not None
        assert record.step.site.file == __file__
        assert record.step.site.via == "barrier"


def test_errors_are_those_of_the_store(here: Here, tmp_path: Path) -> None:
    store = file_store(tmp_path)
    for wrong in ((), (1,), (["a", 2],), ("a", object())):
        with pytest.raises(TypeError):
            store.set(*wrong)
    with pytest.raises(TypeError):
        store.multi_set(["a", "b"], 5)
    with pytest.raises(TypeError):
        store.wait("a", "b", "c")


def test_a_thread_that_waits_holds_nobody_up(here: Here, tmp_path: Path) -> None:
    store = file_store(tmp_path)
    thread = threading.Thread(target=store.wait, args=(["key"],))
    thread.start()
    store.set("key", "1")
    thread.join(60)
    assert not thread.is_alive()


def test_a_class_of_ones_own_works_as_it_did(here: Here, tmp_path: Path) -> None:
    class Kept(Store):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.kept: dict[str, bytes] = {}

        def set(self, key: str, value: Any) -> None:
            self.kept[key] = value

        def get(self, key: str) -> bytes:
            return self.kept[key]

    below = Kept()
    PrefixStore("a", below).set("key", "1")
    assert list(below.kept) == ["a/key"]


def test_the_classes_are_put_back() -> None:
    before = [dict(vars(cls)) for cls in (dist.FileStore, dist.TCPStore, PrefixStore)]  # type: ignore[attr-defined]
    with rank_here():
        assert "set" in vars(PrefixStore)
    assert [dict(vars(cls)) for cls in (dist.FileStore, dist.TCPStore, PrefixStore)] == before  # type: ignore[attr-defined]
