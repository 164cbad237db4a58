"""What the source says of keys, and which of two keys was meant for the other."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from rankdrill.diagnosis.stores.flow import counts_up, depends_on
from rankdrill.diagnosis.stores.source import asks_again, sets_later
from rankdrill.diagnosis.stores.uses import Use, alike, number_in
from rankdrill.ledger import Record, State
from rankdrill.step import Kind, Site, Step


def site(function: Callable[..., Any], mark: str) -> Site:
    lines, first = inspect.getsourcelines(function)
    (line,) = [number for number, text in enumerate(lines, first) if text.rstrip().endswith(f"# {mark}")]
    return Site(inspect.getfile(function), line, function.__name__)


def plain(store: Any) -> None:
    seen = int(store.get("seen"))  # got
    store.set("seen", str(seen + 1))  # set


def by_a_list(store: Any) -> None:
    raw = store.get("done")  # got
    names = []
    names.append(raw)
    store.set("done", ",".join(names))  # set


def by_a_condition(store: Any, mine: int) -> None:
    if mine > int(store.get("best")):  # got
        store.set("best", str(mine))  # set


def by_an_attribute(self: Any, store: Any) -> None:
    self.seen = int(store.get("seen"))  # got
    self.seen += 1
    store.set("seen", str(self.seen))  # set


def of_something_else(store: Any, rank: int) -> None:
    before = store.get("last")  # got
    print(before)
    store.set("last", str(rank))  # set


def beside_an_attribute(self: Any, store: Any) -> None:
    self.before = store.get("last")  # got
    store.set("last", self.name)  # set


@pytest.mark.parametrize("function", [plain, by_a_list, by_a_condition, by_an_attribute])
def test_what_is_set_follows_from_what_was_got(function: Callable[..., None]) -> None:
    assert depends_on(site(function, "got"), site(function, "set"))


@pytest.mark.parametrize("function", [of_something_else, beside_an_attribute])
def test_what_is_set_has_nothing_to_do_with_what_was_got(function: Callable[..., None]) -> None:
    assert not depends_on(site(function, "got"), site(function, "set"))


def in_one_line(store: Any) -> None:
    store.set("seen", str(int(store.get("seen")) + 1))  # got and set


def the_greater(store: Any, mine: int) -> None:
    best = max(int(store.get("best")), mine + 1)  # got
    store.set("best", str(best))  # set


def one_more_field(store: Any) -> None:
    fields = dict(store.get("config"))  # got
    fields["rate"] = 0.1
    store.set("config", str(fields))  # set


@pytest.mark.parametrize("function", [plain, by_an_attribute])
def test_what_done_twice_comes_to_more(function: Callable[..., None]) -> None:
    assert counts_up(site(function, "got"), site(function, "set"))


def test_a_get_within_a_set() -> None:
    both = site(in_one_line, "got and set")
    assert counts_up(both, both)


@pytest.mark.parametrize("function", [the_greater, one_more_field, by_a_condition, of_something_else])
def test_what_done_twice_is_the_same(function: Callable[..., None]) -> None:
    assert not counts_up(site(function, "got"), site(function, "set"))


def test_the_value_alone() -> None:
    assert depends_on(site(plain, "got"), site(plain, "set"), value=True)
    assert not depends_on(site(by_a_condition, "got"), site(by_a_condition, "set"), value=True)


def of_two_keys(store: Any) -> None:
    hits, total = store.multi_get(["hits", "total"])  # got
    store.multi_set(["hits", "phase", "total"], [str(int(hits) + 1), "running", total])  # set


@pytest.mark.parametrize(("key", "follows"), [("hits", True), ("phase", False), ("run/total", True), ("", True)])
def test_of_several_values_that_of_the_key(key: str, follows: bool) -> None:
    assert depends_on(site(of_two_keys, "got"), site(of_two_keys, "set"), key=key) is follows


def test_of_two_functions_nobody_knows() -> None:
    assert not depends_on(site(plain, "got"), site(by_a_list, "set"))
    assert not depends_on(Site("nowhere.py", 1, "f"), Site("nowhere.py", 2, "f"))


def until_it_is_so(store: Any) -> None:
    while store.get("turn") != b"1":  # asks
        pass
    store.get("turn")  # once


def test_who_asks_again_and_again() -> None:
    assert asks_again(site(until_it_is_so, "asks"))
    assert not asks_again(site(until_it_is_so, "once"))
    assert asks_again(Site("nowhere.py", 1, "f")), "nobody knows"


def sets_by_rank(store: Any, rank: int) -> None:
    store.set("before", "1")
    store.wait(["go"])  # here
    if rank == 1:
        store.set("go", "1")
    elif rank != 2:
        store.set(f"done/{rank}", "1")
    else:
        store.add(str(rank), 1)


@pytest.mark.parametrize(
    ("rank", "key", "later"),
    [
        (1, "go", True),
        (0, "go", False),
        (1, "cache/go", True),
        (1, "ego", False),
        (0, "done/0", True),
        (1, "done/1", False),
        (2, "done/2", False),
        (0, "before", False),
    ],
)
def test_which_rank_sets_a_key_further_down(rank: int, key: str, later: bool) -> None:
    assert sets_later(rank, site(sets_by_rank, "here"), key, size=3) is later


@pytest.mark.parametrize(
    ("key", "other", "numbers"),
    [
        ("done/4", "done/3", (0, 4, 3)),
        ("a1/done/4", "a1/done/12", (1, 4, 12)),
        ("a1/done/4", "a2/done/3", None),
        ("done/4", "done/4", None),
        ("done/4", "gone/3", None),
    ],
)
def test_two_keys_may_differ_in_one_number(key: str, other: str, numbers: tuple[int, int, int] | None) -> None:
    assert number_in(key, other) == numbers


@pytest.mark.parametrize(
    ("key", "other", "like"),
    [
        ("run/weights-ready", "run/weights_ready", True),
        ("run/cache2/words", "run/cache/words", True),
        ("run/step/50", "run/step/49", True),
        ("run/ready", "run/vocabulary", False),
        ("a-long-common-prefix/go", "a-long-common-prefix/stop", False),
    ],
)
def test_which_key_was_meant_for_which(key: str, other: str, like: bool) -> None:
    record = Record(0, Step(Kind.STORE, "set", other, digest=2), State.ENDED, 1, 2, 1, None, "")
    assert (alike(Step(Kind.STORE, "get", key, digest=1), Use(0, record)) > 0) is like
