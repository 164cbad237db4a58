"""Between which lines a rank can have waited for others unseen."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankdrill.diagnosis.stores.quiet import quiet_between
from rankdrill.step import Site

BETWEEN = """\
def body():
    dist.barrier()
    {between}
    seen = float(store.get("seen"))
    store.set("seen", str(seen + 1))
"""


@pytest.mark.parametrize(
    ("between", "quiet"),
    [
        ("pass", True),
        ("time.sleep(0.3 * rank)", True),
        ("names.append(str(rank))", True),
        ("print(known.get('a'), [len(one) for one in names])", True),
        ("for _ in range(3): pass", True),
        ("connection.recv(1)", False),
        ("next(lines)", False),
        ("train()", False),
        ("queue.get()", False),
        ("with lock: pass", False),
        ("while not memory[0]: pass", False),
        ("for one in messages: pass", False),
        ("handlers[0]()", False),
    ],
)
def test_between_two_lines(tmp_path: Path, between: str, quiet: bool) -> None:
    file = str(tmp_path / "program.py")
    Path(file).write_text(BETWEEN.format(between=between))
    after, got, put = (Site(file, line, "body") for line in (2, 4, 5))
    assert quiet_between(after, got, put) is quiet


HELPERS = """\
def read():
    {within}
    return store.get("seen")

def again():
    while True:
        dist.barrier()
        store.set("seen", read())

def once():
    dist.barrier()
    store.set("seen", read())
"""


@pytest.mark.parametrize(
    ("function", "line", "within", "quiet"),
    [("once", 11, "pass", True), ("once", 11, "connection.recv(1)", False), ("again", 7, "pass", False)],
)
def test_in_helpers_and_loops(tmp_path: Path, function: str, line: int, within: str, quiet: bool) -> None:
    file = str(tmp_path / "program.py")
    Path(file).write_text(HELPERS.format(within=within))
    put = Site(file, line + 1, function)
    assert quiet_between(Site(file, line, function), Site(file, 3, "read", "", put), put) is quiet


def test_where_nobody_knows() -> None:
    assert not quiet_between(*(Site("nowhere.py", line, "f") for line in (1, 2, 3)))
