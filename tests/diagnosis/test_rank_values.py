"""What an expression is on a rank, as far as the source says."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from rankdrill.diagnosis.calls.rank_values import UNKNOWN, Reading

SIZE = 4


def read(source: str, *, size: int | None = SIZE, plain: bool = False) -> list[bool | None]:
    """What the last line of `source`, in its function ``body`` if it has one, holds on each of four ranks."""
    tree = ast.parse(dedent(source))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "body"]
    scope: ast.AST = functions[0] if functions else tree
    last = (functions[0] if functions else tree).body[-1]
    assert isinstance(last, ast.Expr)
    return [Reading(rank, size, tree, scope, plain).holds(last.value) for rank in range(SIZE)]


@pytest.mark.parametrize(
    ("test", "ranks"),
    [
        ("rank == 2", {2}),
        ("2 == rank", {2}),
        ("0 < dist.get_rank() < 3", {1, 2}),
        ("rank % 2 == 0", {0, 2}),
        ("rank % 2", {1, 3}),
        ("rank in (1, 3)", {1, 3}),
        ("rank not in [0]", {1, 2, 3}),
        ("rank in range(1, 3)", {1, 2}),
        ("rank == world_size - 1", {3}),
        ("rank == dist.get_world_size() // 2", {2}),
        ("not rank", {0}),
        ("self.rank + 1 == self.world_size", {3}),
        ("int(os.environ['RANK']) == 1", {1}),
        ("int(os.environ.get('RANK', '0')) == int(os.environ['WORLD_SIZE']) - 1", {3}),
        ("(rank + 1) % world_size == 0", {3}),
        ("rank == (1 if world_size > 2 else 0)", {1}),
        ("rank == min(2, world_size)", {2}),
        ("rank == 1 or rank == 2", {1, 2}),
        ("is_main_process()", {0}),
        ("not self.is_main", {1, 2, 3}),
        ("rank == 1 and True", {1}),
        ("rank ^ 1 == 0", {1}),
    ],
)
def test_what_holds(test: str, ranks: set[int]) -> None:
    assert read(test) == [rank in ranks for rank in range(SIZE)]


@pytest.mark.parametrize(
    "test",
    [
        "local_rank == 0",
        "dist.get_rank(group) == 0",
        "rank == leader",
        "rank == len(batches)",
        "rank == 4 // zero",
        "rank < 'a'",
        "batches",
        "rank in ranks",
        "leader()",
        "rank // 0",
        "rank in range(100000000)",
    ],
)
def test_what_nobody_knows(test: str) -> None:
    assert read(test) == [None] * SIZE


def test_a_part_that_decides_is_enough() -> None:
    assert read("rank == 1 and batches") == [False, None, False, False]
    assert read("rank == 1 or batches") == [None, True, None, None]


def test_nobody_knows_how_many_there_are() -> None:
    assert read("rank == world_size - 1", size=None) == [None] * SIZE


@pytest.mark.parametrize(
    "source",
    [
        "LEADER = 2\nrank == LEADER",
        "LEADER = 2\ndef body(rank):\n    rank == LEADER",
        "def body(rank):\n    leader = rank == 2\n    leader",
        "def body(index, ranks):\n    me = dist.get_rank()\n    me == 2",
        "def body():\n    rank, size = dist.get_rank(), dist.get_world_size()\n    rank == size - 2",
        "def leads(rank, by):\n    return rank == by\ndef body(rank):\n    leads(rank, 2)",
        "def leads():\n    '''Says so.'''\n    me = dist.get_rank()\n    return me == 2\ndef body(rank):\n    leads()",
        """
        class Trainer:
            def __init__(self, last):
                self.rank, self.leads = dist.get_rank(), dist.get_rank() == 2
            def body(self):
                self.leads
        """,
        """
        class Trainer:
            @property
            def leads(self):
                return self.rank == 2
            def body(self):
                self.leads
        """,
        """
        class Trainer:
            def leads(self, who):
                return self.rank == who
            def body(self):
                self.leads(2)
        """,
        "def body(args):\n    rank = launch(args)\n    rank == 2",
    ],
)
def test_names_are_what_they_are_bound_to(source: str) -> None:
    assert read(source) == [False, False, True, False]


@pytest.mark.parametrize(
    "source",
    [
        "def body(ranks):\n    for rank in ranks: pass\n    rank == 2",
        "def body(group):\n    rank = dist.get_rank(group)\n    rank == 2",
        "def body():\n    leader = 2\n    leader = 1\n    rank == leader",
        "def body():\n    leader = 0\n    leader += 2\n    rank == leader",
        "def leads():\n    log()\n    return rank == 2\ndef body(rank):\n    leads()",
        "leads = leads\nleads",
        "def leads(rank):\n    return leads(rank)\nleads(2)",
        """
        class Trainer:
            def one(self):
                self.leader = 1
            def other(self):
                self.leader = 2
            def body(self):
                self.rank == self.leader
        """,
    ],
)
def test_what_is_bound_otherwise_is_not_known(source: str) -> None:
    assert read(source) == [None] * SIZE


@pytest.mark.parametrize(
    ("test", "known"), [("rank == 1", True), ("not rank", True), ("rank != 0 and rank < 3", True),
                        ("rank % 2 == 0", False), ("rank == world_size - 1", False), ("rank in (1, 2)", False)]
)  # fmt: skip
def test_plain_is_a_comparison_with_one_number(test: str, known: bool) -> None:
    assert (None not in read(test, plain=True)) is known


def test_what_is_not_known_has_no_truth() -> None:
    with pytest.raises(TypeError, match="not known"):
        bool(UNKNOWN)
