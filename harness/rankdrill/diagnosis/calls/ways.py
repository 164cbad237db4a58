"""The ways past a line of the user's code: which there are in its function, and which of them it was not.

An ``if`` around the line, one before it that ends in a return, a ``continue`` or a ``break``, the end of a loop around
it, and what catches an error.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rankdrill.diagnosis.calls.asking import asks_for_the_rank
from rankdrill.diagnosis.calls.bound import is_same_on_all
from rankdrill.diagnosis.calls.tree import COMPREHENSIONS, FUNCTIONS, LOOPS, STRAIGHT, Path, name_called, names_in
from rankdrill.step import Site

__all__ = [
    "Node",
    "Way",
    "catching",
    "holds",
    "is_around",
    "is_fixed",
    "kept_by",
    "may_be_thrown_past",
    "may_change",
    "ways_at",
    "would_have_shown",
    "yields_before",
]

_LEAVES = (ast.Return, ast.Continue, ast.Break)
_PLAIN = (
    ast.Name,
    ast.Constant,
    ast.Compare,
    ast.BoolOp,
    ast.UnaryOp,
    ast.expr_context,
    ast.cmpop,
    ast.boolop,
    ast.unaryop,
)
_KNOWN = (*STRAIGHT, *FUNCTIONS, *LOOPS, ast.If, ast.Try, ast.Module)
_OF_MODELS = frozenset({"parameters", "named_parameters", "buffers", "modules", "named_modules", "children"})
"""Methods that give what a model consists of: it is one model on all ranks."""
_MESSAGES = frozenset({"send", "isend", "recv", "irecv"})
_SWALLOWS = ("suppress(", "raises(")


Node: TypeAlias = ast.If | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler | ast.Expr | ast.expr


@dataclass(frozen=True)
class Way:
    """The `node` by which a rank may go past a line, and to what then, if that is a block of the node's own."""

    node: Node
    taken: Sequence[ast.stmt] = ()


# --------------------------------------------------------------------------------------------- which there are


def ways_at(path: Path, line: int, *scopes: ast.AST) -> list[Way]:
    """All that lead past `line`, to which `path` leads in `scopes`, the function and its file."""
    found: list[Way] = []
    for node, part in path:
        if isinstance(node, ast.If):
            in_body = part == "body" or (part == "test" and node.body[0].lineno == line)  # all of it in one line
            if in_body or part == "orelse":
                found.append(Way(node, node.orelse if in_body else node.body))
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While) and part == "body":
            found += [] if is_fixed(node, *scopes) else [Way(node)]
            behind = (each for each in node.body if each.lineno > line)
            found += [way for each in behind for way in _leaving(each, (ast.Return, ast.Break))]
        block = getattr(node, part, None)  # of a handler or a case that is not one
        for statement in block if isinstance(block, list) else ():
            if (statement.end_lineno or statement.lineno) < line:
                found += _leaving(statement, _LEAVES)
    return found


def kept_by(function: ast.AST) -> list[ast.expr]:
    """The decorator that has a function called once for the same arguments: `functools.cache`, say."""
    decorators = getattr(function, "decorator_list", ())
    called = [each.func if isinstance(each, ast.Call) else each for each in decorators]
    return [each for each in called if ast.unparse(each).endswith("cache")]


def yields_before(function: ast.AST, line: int) -> list[ast.Expr]:
    """Of a context manager where it waits for its block before that `line`: what fails there leads past it, unless
    something in the function catches it.
    """
    decorators = [ast.unparse(each) for each in getattr(function, "decorator_list", ())]
    if not any(each.endswith("contextmanager") for each in decorators):
        return []
    before = (each for each in getattr(function, "body", ()) if each.lineno < line)
    return [each for each in before if isinstance(each, ast.Expr) and isinstance(each.value, ast.Yield)]


def is_fixed(loop: ast.For | ast.AsyncFor | ast.While, *scopes: ast.AST) -> bool:
    """Whether it has as many rounds on all ranks, if nothing leaves it: ``for step in range(100)``."""
    told = loop.test if isinstance(loop, ast.While) else loop.iter
    if isinstance(told, ast.Call):
        if name_called(told) in _OF_MODELS:
            return True
        return name_called(told) == "range" and all(is_same_on_all(each, *scopes) for each in told.args)
    if isinstance(told, ast.Tuple | ast.List):
        return not any(isinstance(each, ast.Starred) for each in told.elts)
    return isinstance(told, ast.Constant)


def _leaving(node: ast.AST, leaves: tuple[type[ast.stmt], ...]) -> Iterator[Way]:
    """What in `node` ends in one that `leaves`; within a loop of its own only a return does."""
    if isinstance(node, FUNCTIONS):
        return
    if isinstance(node, ast.If):
        yield from (Way(node, block) for block in (node.body, node.orelse) if block and isinstance(block[-1], leaves))
    for child in ast.iter_child_nodes(node):
        yield from _leaving(child, (ast.Return,) if isinstance(node, LOOPS) else leaves)


# --------------------------------------------------------------------------------------------- which it was not


def is_around(way: Way, line: int, now: int) -> bool:
    """Whether the rank has come to `now` by the other way, which leads to `line`, too."""
    node = way.node
    if isinstance(node, ast.ExceptHandler | ast.Expr | ast.expr):
        return False
    return any(holds(block, now) and block is not way.taken for block in (node.body, node.orelse)) and (
        isinstance(node, ast.If) or holds(node.body, line)
    )


def would_have_shown(way: Way, made: Collection[int]) -> bool:
    """Whether what it leads to sends or receives first, and no call in `made`, lines since then, is of that block."""
    first = way.taken[0] if way.taken else None
    calls = [node for node in ast.walk(first) if isinstance(node, ast.Call)] if isinstance(first, ast.Expr) else []
    return any(name_called(call) in _MESSAGES for call in calls) and not any(holds(way.taken, line) for line in made)


def holds(block: Sequence[ast.stmt], line: int) -> bool:
    return bool(block) and block[0].lineno <= line <= (block[-1].end_lineno or block[-1].lineno)


def may_change(way: Way, function: ast.AST, path: Path, tree: ast.AST) -> bool:
    """Whether it may lead elsewhere one time than the time before: not so what asks for the rank alone."""
    if not isinstance(way.node, ast.If):
        return True
    test = way.node.test
    loops: list[ast.AST] = [node for node, part in path if isinstance(node, LOOPS) and part == "body"]
    names = names_in(test)
    if not loops:
        names -= {name for name in names & _arguments(function) if asks_for_the_rank(ast.Name(name), tree)}
    if any(names & _bound(scope) for scope in loops or [function]):
        return True
    return not asks_for_the_rank(test, tree) and not all(isinstance(each, _PLAIN) for each in ast.walk(test))


def _bound(scope: ast.AST) -> set[str]:
    stored = {each.id for each in ast.walk(scope) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return stored | _arguments(scope)


def _arguments(scope: ast.AST) -> set[str]:
    return {each.arg for each in ast.walk(scope) if isinstance(each, ast.arg)}


def may_be_thrown_past(path: Path, now: Site | None) -> bool:
    """Whether an error may have led past the line unseen, or what stands around it in its own statement."""
    return catching(path, now) != []


def catching(path: Path, now: Site | None, call: int = 0) -> list[ast.ExceptHandler] | None:
    """The handlers that may have caught an error which led past the line; None if something else may have, or nobody
    can say which of several did. Where it is the `call` itself that stands there, nothing before it may have failed
    that it begins with.
    """
    found: list[ast.ExceptHandler] = []
    for node, part in path:
        if now is not None and _is_in(node, part, now.line):
            continue
        if isinstance(node, ast.Try) and part == "body" and node.handlers:
            if call and _is_all_of(node.body[0], call):
                continue
            first, *more = node.handlers
            if more or any(isinstance(each, ast.Raise) for each in ast.walk(first)):
                return None
            found.append(first)
        if isinstance(node, ast.With | ast.AsyncWith) and part == "body" and _swallows(node):
            return None
        if not isinstance(node, _KNOWN) or isinstance(node, (ast.IfExp, ast.BoolOp, *COMPREHENSIONS)):
            return None
    return found


def _is_all_of(statement: ast.stmt, line: int) -> bool:
    """Whether it is no more than one call in that line, of names."""
    calls = sum(isinstance(each, ast.Call) for each in ast.walk(statement))
    return isinstance(statement, ast.Expr | ast.Assign) and statement.lineno == line and calls == 1


def _swallows(node: ast.With | ast.AsyncWith) -> bool:
    return any(word in ast.unparse(item.context_expr) for item in node.items for word in _SWALLOWS)


def _is_in(node: ast.AST, part: str, line: int) -> bool:
    block = getattr(node, part, None)
    return isinstance(block, list) and holds(block, line)
