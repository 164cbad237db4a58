"""Programs of one kind are no copies of each other, and not all mistakes are made in the first call."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import pytest

from tests.catalogue.programs import KINDS, Program, catalogue

EACH_KIND, SIZES = 3, 2  # shapes and numbers of ranks
LONG = 20  # turns, of which all but one are right
FIFTIETH = 49
MAKE_GROUPS = {"new_group", "new_subgroups", "get_group", "init_device_mesh"}
FAMILIES = {
    "collectives": {"call ordering", "missing call", "extra call", "size mismatch", "root mismatch"},
    "messages": {"unmatched message", "message race"},
    "silent": {"operator mismatch", "memory layout", "input hazard", "request leak"},
}
"""Silent: over plain gloo nothing fails and nothing hangs, and what comes out is wrong."""
MISTAKES = [(program, program.truth) for program in catalogue("mistakes") if program.truth is not None]


@dataclass(frozen=True)
class Shape:
    """In what two programs of one kind may differ: `frameworks` are the libraries above torch's bare calls."""

    ranks: int
    grouped: bool
    loops: bool
    frameworks: frozenset[str]


def shape_of(program: Program) -> Shape:
    nodes = list(ast.walk(tree_of(program)))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    called = names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    known = inspect.getmodule(program.body)
    homes = {home_of(vars(known)[name]) for name in names if name in vars(known)}
    frameworks = frozenset(home for home in homes if home.startswith(("torch.distributed.", "torch.nn.")))
    loops = any(isinstance(node, ast.For | ast.While) for node in nodes)
    return Shape(program.ranks, bool(called & MAKE_GROUPS), loops, frameworks)


def tree_of(program: Program) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(program.body)))


def home_of(value: object) -> str:
    return value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", ""))


def turns_of(program: Program) -> Iterator[str]:
    """The turns of long loops that it asks for: ``if step == 49``, or ``step == steps - 1``."""
    tree = tree_of(program)
    numbers = dict(assigned(tree))
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For) and (turns := turns_in(loop, numbers)) >= LONG and is_noisy(loop, program):
            names = {0: "first", FIFTIETH: "fiftieth", turns - 1: "last"}
            yield from (names[turn] for turn in singled_out(loop, numbers) if turn in names)


def assigned(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Names that are given a number, ``steps, value = 30, torch.ones(2)`` among them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            pairs = zip(elements(target), elements(value), strict=False)
            yield from (
                (name.id, number)
                for name, given in pairs
                if (number := number_in(given, {})) is not None and isinstance(name, ast.Name)
            )


def elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def number_in(node: ast.expr, numbers: dict[str, int]) -> int | None:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return numbers.get(name)
        case ast.BinOp(left=ast.Name(id=name), op=ast.Sub(), right=ast.Constant(value=int(less))) if name in numbers:
            return numbers[name] - less
    return None


def turns_in(loop: ast.For, numbers: dict[str, int]) -> int:
    match loop.iter:
        case ast.Call(func=ast.Name(id="range"), args=[turns]):
            return number_in(turns, numbers) or 0
    return 0


def singled_out(loop: ast.For, numbers: dict[str, int]) -> Iterator[int]:
    for node in ast.walk(loop):
        match node, loop.target:
            case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq()], comparators=[turn]), ast.Name(id=own):
                if name == own and (number := number_in(turn, numbers)) is not None:
                    yield number


def is_noisy(loop: ast.For, program: Program) -> bool:
    """Whether another line of the loop makes a call, which is right, beside the guilty ones."""
    assert program.truth is not None
    first = inspect.getsourcelines(program.body)[1]
    guilty = {line - first + 1 for line in program.truth.lines}
    calls = (node for node in ast.walk(loop) if isinstance(node, ast.Attribute))
    return any(
        isinstance(node.value, ast.Name) and node.value.id == "dist" and node.lineno not in guilty for node in calls
    )


@pytest.mark.parametrize("kind", KINDS)
def test_programs_of_a_kind_differ(kind: str) -> None:
    shapes = {shape_of(program) for program, truth in MISTAKES if truth.kind == kind}
    assert len(shapes) >= EACH_KIND
    assert len({shape.ranks for shape in shapes}) >= SIZES


@pytest.mark.parametrize("family", FAMILIES)
def test_mistakes_are_made_in_the_first_the_fiftieth_and_the_last_turn(family: str) -> None:
    of_family = [program for program, truth in MISTAKES if truth.kind in FAMILIES[family]]
    assert {turn for program in of_family for turn in turns_of(program)} == {"first", "fiftieth", "last"}


def test_a_turn_counts_where_the_loop_is_long_and_others_call_in_it() -> None:
    by_name = {program.name: program for program, _ in MISTAKES}
    assert list(turns_of(by_name["extra.sends_its_settings_in_the_first_step"])) == []  # of five
    assert list(turns_of(by_name["ordering.saved_before_the_last_step"])) == ["last"]
    assert list(turns_of(by_name["missing.skips_the_first_step"])) == []  # no other call
