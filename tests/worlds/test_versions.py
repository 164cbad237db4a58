"""Whether a dictionary was written to: never a change missed, on interpreters that number them and on others."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from rankdrill.worlds import versions
from rankdrill.worlds.versions import Version

CHANGES: list[Callable[[dict[str, Any]], object]] = [
    lambda d: d.update(a=0),
    lambda d: d.update(new=0),
    lambda d: d.pop("a"),
    lambda d: d.clear(),
    lambda d: d.__setitem__("b", None),
    lambda d: d.__ior__({"c": 1}),
]


@pytest.mark.parametrize("change", CHANGES)
def test_every_kind_of_writing_is_noticed_once(change: Callable[[dict[str, Any]], object]) -> None:
    d: dict[str, Any] = {"a": 1, "b": 2}
    version = Version(d)
    change(d)
    assert version.touched()
    assert version.touched() is not versions.numbered


def test_reading_is_no_writing() -> None:
    d = {"a": 1}
    version = Version(d)
    assert [d["a"], *d.values(), d.copy(), len(d)] == [1, 1, {"a": 1}, 1]
    assert version.touched() is not versions.numbered


def test_attributes_of_modules_and_classes_are_noticed_however_often_the_same_line_sets_them() -> None:
    class Owner:
        pass

    module: Any = ModuleType("tried")
    owner: Any = Owner
    for target in (module, owner):
        version = Version(vars(target))
        for value in range(2000):  # a line that runs often is specialised by the interpreter
            target.attribute = value
            assert version.touched(), f"missed change {value} of {target}"
        setattr(target, "attribute", None)  # noqa: B010 (another way to write)
        assert version.touched()
        del target.attribute
        assert version.touched()


COUNT = 0


def test_a_global_that_a_function_sets_is_noticed() -> None:
    global COUNT
    version = Version(globals())
    for _ in range(2000):
        COUNT += 1
        assert version.touched()


def test_another_threads_writing_is_noticed() -> None:
    d: dict[str, Any] = {}
    version = Version(d)
    thread = threading.Thread(target=d.update, kwargs={"from": "elsewhere"})
    thread.start()
    thread.join()
    assert version.touched()


def test_where_dictionaries_have_no_numbers_everything_may_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "numbered", False)
    assert Version({}).touched()


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="CPython 3.14 numbers dictionaries no more")
def test_the_interpreters_we_know_do_number_them() -> None:
    assert versions.numbered
