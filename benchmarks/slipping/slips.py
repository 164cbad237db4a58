"""Correct programs with one slip each, as a person would have written it: a call under a condition, a wrong argument.

A slip is made in the source of the program, or of a helper beside it, for a rank and, where a loop counts its rounds,
perhaps for one of these alone. Whoever reads the source finds it there, as in any program.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.slipping.places import MESSAGES, ONE_ROUND, RANK, Place, in_block, places_in, tree_of
from tests.catalogue.programs import Program

__all__ = ["KINDS", "Slip", "slips_of"]

_OF_ONE_TENSOR = frozenset({"all_reduce", "broadcast", "recv", "reduce", "send"})
PEERS = {"dst": 1, "src": 1}
KINDS = (
    *("left out", "made twice", "turned round", "returned before", "went on before"),
    *("another peer", "another tag", "another root", "another reduce op", "another size", "another dtype"),
)


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
        tree = tree_of(self.program)
        _EDITS[self.kind](places_in(tree, self.program)[self.number], _condition(self.rank, self.round_))
        return ast.unparse(ast.fix_missing_locations(tree))


_Edit = Callable[[Place, ast.expr], bool]
"""Changes the tree at a place, for whoever meets the condition; says whether there was something to change."""


def slips_of(program: Program) -> Iterator[Slip]:
    """All slips that there are, for each rank, and where that is possible for one round alone."""
    for number, place in enumerate(places_in(tree_of(program), program)):
        for kind, edit in _EDITS.items():
            if not edit(copy.deepcopy(place), _condition(0, "")):
                continue
            for rank in range(program.ranks):
                for round_ in dict.fromkeys(("", place.round_)):
                    yield Slip(program, kind, rank, number, ast.unparse(place.call)[:60], round_)


def _condition(rank: int, round_: str) -> ast.expr:
    return _parsed(f"{RANK} == {rank}" + (f" and {round_} == {ONE_ROUND}" if round_ else ""))


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


# ------------------------------------------------------------------------------------------- what


def _left_out(place: Place, condition: ast.expr) -> bool:
    place.block[place.at] = ast.If(ast.UnaryOp(ast.Not(), condition), [place.block[place.at]], [])
    return True


def _made_twice(place: Place, condition: ast.expr) -> bool:
    if place.name == "wait":
        return False  # which it may be
    place.block.insert(place.at + 1, ast.If(condition, [copy.deepcopy(place.block[place.at])], []))
    return True


def _turned_round(place: Place, condition: ast.expr) -> bool:
    """With the statement behind it, if that is such a call, too."""
    if len(place.block) <= place.at + 1:
        return False
    pair = place.block[place.at : place.at + 2]
    if not list(in_block([pair[1]])) or not isinstance(pair[1], ast.Expr):
        return False
    turned = [copy.deepcopy(each) for each in reversed(pair)]
    place.block[place.at : place.at + 2] = [ast.If(condition, turned, pair)]
    return True


def _returned_before(place: Place, condition: ast.expr) -> bool:
    place.block.insert(place.at, ast.If(condition, [ast.Return()], []))
    return True


def _went_on_before(place: Place, condition: ast.expr) -> bool:
    """To the next round."""
    if place.loop is None:
        return False
    place.block.insert(place.at, ast.If(condition, [ast.Continue()], []))
    return True


def _tensor(text: str) -> _Edit:
    """Has it take another tensor, which is `text` of its own."""

    def edit(place: Place, condition: ast.expr) -> bool:
        if place.name not in _OF_ONE_TENSOR or not place.call.args:
            return False
        own = place.call.args[0]
        place.call.args[0] = ast.IfExp(condition, _parsed(text.format(ast.unparse(own))), own)
        return True

    return edit


def _argument(names: dict[str, int], among: frozenset[str], more: int) -> _Edit:
    """Has a number among the arguments be so many more, round all ranks."""

    def edit(place: Place, condition: ast.expr) -> bool:
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


def _another_reduce_op(place: Place, condition: ast.expr) -> bool:
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
            *(_left_out, _made_twice, _turned_round, _returned_before, _went_on_before),
            _argument(PEERS, MESSAGES, 1),
            _argument({"tag": 0}, MESSAGES, 7),
            _argument({"src": 1}, frozenset({"broadcast", "broadcast_object_list", "scatter"}), 1),
            _another_reduce_op,
            _tensor("torch.cat([({}).flatten()] * 2)"),
            _tensor("({}).double()"),
        ),
        strict=True,
    )
)
