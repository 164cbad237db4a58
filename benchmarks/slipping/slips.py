"""Correct programs with one slip each, as a person would have written it: a call under a condition, a wrong argument.

A slip is made in the source of the program, or of a helper beside it, for a rank and, where a loop counts its rounds,
perhaps for one of these alone. Whoever reads the source finds it there, as in any program.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.catalogue.programs import Program

__all__ = ["KINDS", "Slip", "slips_of"]

COLLECTIVES = frozenset(
    {"all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "all_to_all_single"}
    | {"barrier", "broadcast", "broadcast_object_list", "gather", "gather_object", "reduce", "reduce_scatter"}
    | {"reduce_scatter_tensor", "scatter", "scatter_object_list"}
)
MESSAGES = frozenset({"irecv", "isend", "recv", "send"})
SETTING = frozenset({"add", "set"})
PEERS = {"dst": 1, "src": 1}
KINDS = ("left out", "made twice", "turned round", "another peer", "another tag", "another root", "another reduce op")
_RANK = "dist.get_rank()"
_LEAST_ROUNDS = 2


@dataclass(frozen=True)
class Slip:
    """A slip of that `kind` at the call `number` of `program`, `line`, made by `rank`: in the second round alone of the
    loop that counts its rounds by `round_`, if that is not empty.
    """

    program: Program
    kind: str
    rank: int
    number: int
    line: str
    round_: str

    @property
    def name(self) -> str:
        """``messages.one_tag_again_and_again: left out on rank 1 in one round: dist.send(...)``."""
        when = " in one round" if self.round_ else ""
        return f"{self.program.name}: {self.kind} on rank {self.rank}{when}: {self.line}"

    def source(self) -> str:
        """That of the program's module, with the slip in it."""
        tree = _parsed_file(self.program.file)
        _EDITS[self.kind](_places(tree, self.program)[self.number], _condition(self.rank, self.round_))
        return ast.unparse(ast.fix_missing_locations(tree))


_Edit = Callable[["_Place", ast.expr], bool]
"""Changes the tree at a place, for whoever meets the condition; says whether there was something to change."""


@dataclass(frozen=True)
class _Place:
    """Statement `at` of `block`, which makes `call`, in a loop that counts its rounds by `round_`, if by any name."""

    block: list[ast.stmt]
    at: int
    call: ast.Call
    round_: str

    @property
    def name(self) -> str:
        return self.call.func.attr if isinstance(self.call.func, ast.Attribute) else ""


def slips_of(program: Program) -> Iterator[Slip]:
    """All slips that there are, for each rank, and where that is possible for one round alone."""
    for number, place in enumerate(_places(_parsed_file(program.file), program)):
        for kind, edit in _EDITS.items():
            if not edit(copy.deepcopy(place), _condition(0, "")):
                continue
            for rank in range(program.ranks):
                for round_ in dict.fromkeys(("", place.round_)):
                    yield Slip(program, kind, rank, number, ast.unparse(place.call)[:60], round_)


def _parsed_file(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text())


def _condition(rank: int, round_: str) -> ast.expr:
    return _parsed(f"{_RANK} == {rank}" + (f" and {round_} == 1" if round_ else ""))


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


# ------------------------------------------------------------------------------------------- where


def _places(tree: ast.Module, program: Program) -> list[_Place]:
    """The calls of torch.distributed and of the store that are statements, in the program and its helpers."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    name = program.body.__name__
    wanted, left = {name}, [name]
    while left:
        named = {node.id for node in ast.walk(functions[left.pop()]) if isinstance(node, ast.Name)}
        new = {each for each in named & functions.keys() if each not in wanted}
        wanted |= new
        left += sorted(new)
    return [place for each in functions if each in wanted for place in _in_block(functions[each].body, "")]


def _in_block(block: list[ast.stmt], round_: str) -> Iterator[_Place]:
    for at, statement in enumerate(block):
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=of, attr=name)) as call) if _is_known(of, name):
                yield _Place(block, at, call, round_)
        inner = _round_of(statement) if isinstance(statement, ast.For) else round_
        for field in ("body", "orelse", "finalbody"):
            if isinstance(held := getattr(statement, field, None), list) and not isinstance(statement, ast.ClassDef):
                yield from _in_block(held, inner)


def _is_known(of: ast.expr, name: str) -> bool:
    match of:
        case ast.Name(id="dist"):
            return name in COLLECTIVES or name in MESSAGES
        case ast.Attribute(attr="store"):
            return name in SETTING
    return False


def _round_of(loop: ast.For) -> str:
    match loop:
        case ast.For(
            target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(rounds))])
        ) if rounds >= _LEAST_ROUNDS and name != "_":
            return name
    return ""


# ------------------------------------------------------------------------------------------- what


def _left_out(place: _Place, condition: ast.expr) -> bool:
    place.block[place.at] = ast.If(ast.UnaryOp(ast.Not(), condition), [place.block[place.at]], [])
    return True


def _made_twice(place: _Place, condition: ast.expr) -> bool:
    place.block.insert(place.at + 1, ast.If(condition, [copy.deepcopy(place.block[place.at])], []))
    return True


def _turned_round(place: _Place, condition: ast.expr) -> bool:
    """With the statement behind it, if that is such a call, too."""
    if len(place.block) <= place.at + 1:
        return False
    pair = place.block[place.at : place.at + 2]
    if not list(_in_block([pair[1]], "")) or not isinstance(pair[1], ast.Expr):
        return False
    turned = [copy.deepcopy(each) for each in reversed(pair)]
    place.block[place.at : place.at + 2] = [ast.If(condition, turned, pair)]
    return True


def _argument(names: dict[str, int], among: frozenset[str], more: int) -> _Edit:
    """Has a number among the arguments be so many more, round all ranks."""

    def edit(place: _Place, condition: ast.expr) -> bool:
        if place.name not in among:
            return False
        for keyword in place.call.keywords:
            if keyword.arg in names and not isinstance(keyword.value, ast.IfExp):
                keyword.value = _other(keyword.value, condition, more)
                return True
        for at in set(names.values()):
            if 0 < at < len(place.call.args):
                place.call.args[at] = _other(place.call.args[at], condition, more)
                return True
        return False

    return edit


def _other(value: ast.expr, condition: ast.expr, more: int) -> ast.expr:
    text = ast.unparse(value)
    changed = _parsed(f"({text} + {more}) % dist.get_world_size()" if more == 1 else f"{text} + {more}")
    return ast.IfExp(condition, changed, value)


def _another_reduce_op(place: _Place, condition: ast.expr) -> bool:
    if place.name not in ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor"):
        return False
    known = next((each for each in place.call.keywords if each.arg == "op"), None)
    if known is None and place.name == "all_reduce" and len(place.call.args) > 1:
        return False
    usual = known.value if known is not None else _parsed("dist.ReduceOp.SUM")
    other = "MIN" if ast.unparse(usual).endswith("MAX") else "MAX"
    changed = ast.IfExp(condition, _parsed(f"dist.ReduceOp.{other}"), usual)
    if known is None:
        place.call.keywords.append(ast.keyword("op", changed))
    else:
        known.value = changed
    return True


_EDITS: dict[str, _Edit] = dict(
    zip(
        KINDS,
        (
            *(_left_out, _made_twice, _turned_round),
            _argument(PEERS, MESSAGES, 1),
            _argument({"tag": 0}, MESSAGES, 7),
            _argument({"src": 1}, frozenset({"broadcast", "broadcast_object_list", "scatter"}), 1),
            _another_reduce_op,
        ),
        strict=True,
    )
)
