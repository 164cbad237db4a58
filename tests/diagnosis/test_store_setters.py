"""Which line sets a key, which rank alone can come there, and whether one has gone past it."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from rankdrill.diagnosis.stores.patterns import names_key, pattern_of
from rankdrill.diagnosis.stores.setters import Setter, gone_by, only_setter
from rankdrill.step import Site

SIZE = 4


def written(directory: Path, source: str) -> str:
    path = directory / "program.py"
    path.write_text(dedent(source))
    return str(path)


def site_in(file: str, function: str = "body") -> Site:
    lines = Path(file).read_text().splitlines()
    return Site(file, next(at for at, line in enumerate(lines, 1) if line.startswith(f"def {function}(")), function)


def who_sets(directory: Path, source: str, key: str = "go") -> int | None:
    found = only_setter(key, [site_in(written(directory, source))], SIZE)
    return found.rank if found is not None else None


@pytest.mark.parametrize(
    ("body", "rank"),
    [
        ("if rank == 0: store.set('go', '1')", 0),
        ("if dist.get_rank() == 2: store.set('go', '1')", 2),
        ("if self.rank != 0:\n        return\n    store.set('go', '1')", 0),
        ("if not rank:\n        store.set('go', '1')", 0),
        ("if rank:\n        pass\n    else:\n        store.set('go', '1')", 0),
        ("if rank == 1 and path:\n        store.set('go', '1')", 1),
        ("if rank > 0 and rank < 2:\n        store.set('go', '1')", 1),
        ("if rank == 0 or path:\n        return\n    if rank < 2:\n        store.set('go', '1')", 1),
        ("for one in path:\n        if rank != 3:\n            continue\n        store.set('go', '1')", 3),
        ("with path:\n        store.set('go', '1') if rank == 3 else None", 3),
        ("store.set('go', '1')", None),
        ("if node_rank == 0: store.set('go', '1')", None),
        ("if dist.get_rank(group) == 0: store.set('go', '1')", None),
        ("if rank == leader: store.set('go', '1')", None),
        ("if rank == 0 or path: store.set('go', '1')", None),
        ("if rank == 0:\n        if path: return\n    store.set('go', '1')", None),
        ("if rank == 0 and path: return\n    store.set('go', '1')", None),
        ("if rank == 0:\n        store.set('go', '1')\n    else:\n        store.set('go', '2')", None),
        ("if rank == 0: store.set('go', '1')\n    store.set(path, '1')", None),
        ("if rank == 0: store.set('go', '1')\n    done.set()\n    seen.add(path)", 0),
        ("if rank == 0: store.set('stop', '1')", None),
    ],
)
def test_one_rank_alone(tmp_path: Path, body: str, rank: int | None) -> None:
    assert who_sets(tmp_path, f"def body(store, rank, path):\n    {body}\n") == rank


@pytest.mark.parametrize(
    ("callers", "rank"),
    [
        ("def body():\n    if rank == 0:\n        publish(store)\n", 0),
        ("def body():\n    if rank == 0:\n        Thread(target=publish).start()\n", 0),
        ("def body():\n    if rank == 0:\n        outer()\ndef outer():\n    publish(store)\n", 0),
        (
            "def body():\n    if rank < 2:\n        outer()\ndef outer():\n    if rank != 0:\n        publish()\n",
            1,
        ),
        ("def body():\n    if rank == 0:\n        publish(store)\n    publish(other)\n", None),
        ("def body():\n    if rank == 0:\n        publish(store)\n    else:\n        self.publish()\n", None),
        ("def body():\n    publish(store)\n", None),
        ("def body():\n    if rank == 0:\n        publish()\ndef no():\n    publish()\n    store.set(key, '1')\n", 0),
        ("def body():\n    if rank == 0:\n        publish()\n    on()\ndef on():\n    store.set(key, '1')\n", None),
        ("def body():\n    if rank == 0:\n        publish()\nhooks = [publish]\n", None),
    ],
)
def test_through_callers(tmp_path: Path, callers: str, rank: int | None) -> None:
    assert who_sets(tmp_path, f"def publish(store):\n    store.set('go', '1')\n{callers}") == rank


def test_the_line_that_sets(tmp_path: Path) -> None:
    file = written(tmp_path, "def body():\n    if rank == 0:\n        store.set('go', '1')\n")
    assert only_setter("run/go", [site_in(file)], SIZE) == Setter(Site(file, 3, "body"), 0)


SOURCE = """\
def publish():
    store.set('go', '1')

def body():
    before()
    if rank == 0:
        publish()
    else:
        other()
    after()
    for one in two:
        looped()

def rounds():
    for one in two:
        if rank == 0:
            publish()
        looped()
    after()
    for one in two:
        looped()
"""


@pytest.mark.parametrize(
    ("line", "past"), [(5, False), (9, True), (10, True), (12, True), (18, False), (19, True), (21, True)]
)
def test_who_has_gone_past(tmp_path: Path, line: int, past: bool) -> None:
    file = written(tmp_path, SOURCE)
    body = "body" if line < 14 else "rounds"
    setter = Setter(Site(file, 2, "publish"), 0)
    helper = Site(file, 99, "nowhere", "", Site(file, line, body))
    assert gone_by(setter, Site(file, line, body)) is past
    assert gone_by(setter, helper) is past
    again = Site(file, line, body, "", Site(file, 12, "body"))
    assert not gone_by(setter, again), "what called it does so again"


def test_what_a_class_does_as_it_is_made(tmp_path: Path) -> None:
    made = """\
        class Board:
            def __init__(self, store):
                store.set('go', '1')

        def body():
            if rank == 1:
                Board(store)
    """
    assert who_sets(tmp_path, made) is None, "the source says not by name who calls that"


def test_who_is_elsewhere(tmp_path: Path) -> None:
    setter = Setter(Site(written(tmp_path, SOURCE), 2, "publish"), 0)
    assert not gone_by(setter, None)
    assert not gone_by(setter, Site("nowhere.py", 1, "f"))


@pytest.mark.parametrize(
    ("given", "key", "fits"),
    [
        ("'go'", "go", True),
        ("'go'", "run/go", True),
        ("'go'", "ego", False),
        ("f'done/{rank}'", "done/3", True),
        ("'done/' + str(rank)", "done/3", True),
        ("'done/%d' % rank", "done/3", True),
        ("'done/{}/x'.format(rank)", "done/3/x", True),
        ("'done/{}/x'.format(rank)", "done/3/y", False),
        ("KEY", "tokenizer", True),
        ("KEY", "go", False),
        ("self.KEY", "tokenizer", True),
        ("f'{KEY}/{rank}'", "tokenizer/1", True),
        ("f'{KEY}/{rank}'", "go/1", False),
        ("['a', 'go']", "go", True),
        ("['a', 'go']", "ago", False),
    ],
)
def test_which_keys_are_meant(given: str, key: str, fits: bool) -> None:
    tree = ast.parse(f"KEY = 'tokenizer'\nlater = 1\nlater = 2\nset({given})")
    call = tree.body[-1].value  # type: ignore[attr-defined]
    pattern = pattern_of(call.args[0], tree)
    assert pattern is not None
    assert names_key(pattern, key) is fits


@pytest.mark.parametrize("given", ["later", "unknown", "name(3)", "[later, 'go']", "key"])
def test_which_keys_nobody_knows(given: str) -> None:
    tree = ast.parse(f"key = 'go'\nlater = 'a'\nlater = 'b'\ndef f(key): ...\nset({given})")
    call = tree.body[-1].value  # type: ignore[attr-defined]
    assert pattern_of(call.args[0], tree) is None
