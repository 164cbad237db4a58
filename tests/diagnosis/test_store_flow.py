"""Whether what is set follows from what was got, where helpers get and set."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rankdrill.diagnosis.stores.flow import counts_up, depends_on, goes_by
from rankdrill.step import Site


def site(function: Callable[..., Any], mark: str, caller: Site | None = None) -> Site:
    lines, first = inspect.getsourcelines(function)
    (line,) = [number for number, text in enumerate(lines, first) if f"# {mark}" in text]
    return Site(inspect.getfile(function), line, function.__name__, "", caller)


def read(store: Any, key: str) -> Any:
    raw = store.get(key)  # got
    return json.loads(raw)


def asked_for(store: Any, key: str) -> bool:
    store.get(key)  # got
    return True


def write(store: Any, key: str, value: Any, note: str = "") -> None:
    print(note)
    text = json.dumps(value)
    store.set(key, text)  # set


def registers(store: Any, name: str) -> None:
    registry = read(store, "registry")  # reads
    registry[name] = "here"
    write(store, "registry", registry)  # writes


def by_keyword(store: Any, name: str) -> None:
    registry = read(store, "registry")  # reads
    write(store, "registry", value={**registry, name: "here"})  # writes


def in_one_line(store: Any, name: str) -> None:
    write(store, "names", [*read(store, "names"), name])  # reads # writes


def only_if(store: Any, mine: int) -> None:
    if read(store, "best") < mine:  # reads
        write(store, "best", mine)  # writes


def something_else(store: Any, name: str) -> None:
    before = read(store, "last")  # reads
    write(store, "last", name, note=str(before))  # writes


def is_told_nothing(store: Any, name: str) -> None:
    known = asked_for(store, "last")  # reads
    write(store, "last", [name, known])  # writes


def counts(store: Any, key: str) -> None:
    write(store, key, read(store, key) + 1)  # reads # writes


def pair(function: Callable[..., Any], get: Callable[..., Any] = read) -> tuple[Site, Site]:
    return site(get, "got", site(function, "reads")), site(write, "set", site(function, "writes"))


@pytest.mark.parametrize("function", [registers, by_keyword, in_one_line, only_if])
def test_through_helpers(function: Callable[..., None]) -> None:
    assert depends_on(*pair(function))
    assert depends_on(*pair(function), value=True) is (function is not only_if)


def test_a_helper_is_given_something_else() -> None:
    assert not depends_on(*pair(something_else))
    assert not depends_on(*pair(is_told_nothing, asked_for))


def test_which_count_up() -> None:
    assert counts_up(*pair(counts))
    assert not counts_up(*pair(registers))
    assert not counts_up(*pair(something_else))


def test_what_is_done_only_if_it_is_so() -> None:
    assert goes_by(*pair(only_if))
    assert not goes_by(*pair(registers))
    assert (
        goes_by(
            *pair(something_else),
        )
        is False
    )
    assert goes_by(Site("nowhere.py", 1, "f"), Site("nowhere.py", 2, "f")), "nobody knows"


class Board:
    store: Any
    items: Any
    name: str

    def load(self) -> None:
        self.items = json.loads(self.store.get("board"))  # got

    def save(self) -> None:
        self.store.set("board", json.dumps(self.items))  # set

    def sign(self) -> None:
        self.store.set("board", self.name)  # signs

    def enter(self, name: str) -> None:
        self.load()  # loads
        self.items.append(name)
        self.save()  # saves

    def leave(self) -> None:
        self.load()  # loads
        self.sign()  # saves


def enters(board: Board, name: str) -> None:
    board.load()  # loads
    board.items.append(name)
    board.save()  # saves


@pytest.mark.parametrize("function", [Board.enter, enters])
def test_by_an_attribute_of_the_object(function: Callable[..., None]) -> None:
    got, put = site(Board.load, "got", site(function, "loads")), site(Board.save, "set", site(function, "saves"))
    assert depends_on(got, put, value=True)


def test_another_attribute_of_the_object() -> None:
    got, put = (
        site(Board.load, "got", site(Board.leave, "loads")),
        site(Board.sign, "signs", site(Board.leave, "saves")),
    )
    assert not depends_on(got, put)


def test_helpers_that_no_function_calls_in_common() -> None:
    got, put = pair(registers)
    assert not depends_on(replace(got, caller=None), put)
    assert not depends_on(got, replace(put, caller=site(counts, "writes")))
