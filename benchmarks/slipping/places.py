"""The calls of a program that a slip can be made at: where they stand in its source, and who comes to them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.catalogue.drilling import Drill
from tests.catalogue.programs import Program, program_named

__all__ = ["COLLECTIVES", "MESSAGES", "ONE_ROUND", "RANK", "Place", "places_in", "tree_of", "who_comes_to"]

COLLECTIVES = frozenset(
    {"all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "all_to_all_single"}
    | {"barrier", "broadcast", "broadcast_object_list", "gather", "gather_object", "reduce", "reduce_scatter"}
    | {"reduce_scatter_tensor", "scatter", "scatter_object_list"}
)
MESSAGES = frozenset({"irecv", "isend", "recv", "send"})
SETTING = frozenset({"add", "set"})
RANK = "dist.get_rank()"
ONE_ROUND = 1
"""The second: that of which a slip in one round alone is made."""
_LEAST_ROUNDS = 2


@dataclass(frozen=True)
class Place:
    """Statement `at` of `block`, which makes `call`: in a loop, it may be, that counts its rounds by `round_`, if by
    any name.
    """

    block: list[ast.stmt]
    at: int
    call: ast.Call
    loop: ast.For | ast.While | None
    round_: str

    @property
    def name(self) -> str:
        return self.call.func.attr if isinstance(self.call.func, ast.Attribute) else ""


def tree_of(program: Program) -> ast.Module:
    """That of the module which the program is written in."""
    return ast.parse(Path(program.file).read_text())


def places_in(tree: ast.Module, program: Program) -> list[Place]:
    """The calls of torch.distributed and of the store that are statements, in the program and its helpers."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    name = program.body.__name__
    wanted, left = {name}, [name]
    while left:
        named = {node.id for node in ast.walk(functions[left.pop()]) if isinstance(node, ast.Name)}
        new = {each for each in named & functions.keys() if each not in wanted}
        wanted |= new
        left += sorted(new)
    return [place for each in functions if each in wanted for place in in_block(functions[each].body)]


def in_block(block: list[ast.stmt], loop: ast.For | ast.While | None = None, round_: str = "") -> Iterator[Place]:
    """Those in `block`, which is in `loop`, and in the blocks of its statements."""
    for at, statement in enumerate(block):
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=of, attr=name)) as call) if _is_known(of, name, call):
                yield Place(block, at, call, loop, round_)
        inner = _round_of(statement) if isinstance(statement, ast.For) else round_
        around = statement if isinstance(statement, ast.For | ast.While) else loop
        for field in ("body", "orelse", "finalbody"):
            if isinstance(held := getattr(statement, field, None), list) and not isinstance(statement, ast.ClassDef):
                is_function = isinstance(statement, ast.FunctionDef)
                yield from in_block(held, None if is_function else around, "" if is_function else inner)


def _is_known(of: ast.expr, name: str, call: ast.Call) -> bool:
    match of:
        case ast.Name(id="dist"):
            return name in COLLECTIVES or name in MESSAGES
        case ast.Attribute(attr="store"):
            return name in SETTING
        case ast.Name() | ast.Call():
            return name == "wait" and not call.args
    return False


def _round_of(loop: ast.For) -> str:
    match loop:
        case ast.For(
            target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(rounds))])
        ) if rounds >= _LEAST_ROUNDS and name != "_":
            return name
    return ""


def who_comes_to(program: Program, module: str, directory: Path, drill: Drill) -> Collection[tuple[int, int, bool]]:
    """The numbers of the places that ranks come to as the program is, with the rank: at all, and in that one round.

    `program` is run once as a new `module` in `directory`, where ranks look for such, in which each place says so.
    """
    tree = tree_of(program)
    # From behind: what is put before a statement moves those behind it.
    for number, place in sorted(enumerate(places_in(tree, program)), key=lambda each: -each[1].at):
        told = f"f'{number} {{{place.round_ or 0}}}\\n'"
        where = f"{str(directory / module)!r} + f'.{{{RANK}}}'"
        place.block.insert(place.at, ast.parse(f"with open({where}, 'a') as told: told.write({told})").body[0])
    (directory / f"{module}.py").write_text(ast.unparse(ast.fix_missing_locations(tree)))
    drill.verdict_on(program_named((module, program.body.__name__)))
    come = set[tuple[int, int, bool]]()
    for rank in range(program.ranks):
        told_by = directory / f"{module}.{rank}"
        for line in told_by.read_text().splitlines() if told_by.exists() else ():
            number, round_ = map(int, line.split())
            come |= {(number, rank, False), (number, rank, round_ == ONE_ROUND)}
    return come
