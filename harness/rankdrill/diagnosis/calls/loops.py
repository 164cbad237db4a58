"""Loops around lines of the user's code: whether one brings a rank to a line again, with another line or without it."""

from __future__ import annotations

import ast

from rankdrill.diagnosis.calls.tree import (
    COMPREHENSIONS,
    IN_PLACE,
    LEAVES,
    LOOPS,
    STRAIGHT,
    Path,
    function_around,
    name_called,
    names_in,
    path_to,
    paths_of,
    shared,
)
from rankdrill.step import Site

__all__ = [
    "comes_round_alone",
    "fixed_rounds_without",
    "go_by_the_element",
    "group_goes_by_the_element",
    "in_one_block",
    "is_for_some_rounds",
    "is_in_a_comprehension",
    "is_in_a_loop",
    "is_in_a_loop_without",
    "is_in_turn",
    "share_a_loop",
]


_OF_A_DICTIONARY = frozenset({"items", "keys"})
_TAKES_OUT = frozenset({"get", "heappop", "next", "pop", "popitem", "popleft"})


def share_a_loop(one: Site, other: Site) -> bool:
    """Whether there is a loop around both."""
    paths = paths_of(one, other)
    if paths is None:
        return False
    return any(isinstance(node, LOOPS) for node, _ in paths[0][: shared(*paths)])


def is_in_a_loop(site: Site) -> bool:
    """Whether there is a loop around it, in its function, that may bring a rank to it again."""
    function = function_around(site)
    path = path_to(function, site.line) if function is not None else ()
    loops = [place for place, (node, part) in enumerate(path) if isinstance(node, LOOPS) and part != "orelse"]
    return any(not _leaves_behind(path[place:], site.line, loops[-1] == place) for place in loops)


def _leaves_behind(path: Path, line: int, innermost: bool) -> bool:
    """Whether what stands behind `line` in its blocks leaves the loop that `path` begins with, whatever fails there."""
    for node, part in reversed(path):
        if isinstance(node, ast.Try) and part == "body" and node.handlers:
            return False
        block = getattr(node, part, None)
        for statement in block if isinstance(block, list) else ():
            if getattr(statement, "end_lineno", 0) < line:
                continue
            if isinstance(statement, ast.Return | ast.Raise) or (innermost and isinstance(statement, ast.Break)):
                return True
            if statement.lineno > line and any(isinstance(each, ast.Continue) for each in ast.walk(statement)):
                return False
    return False


def is_in_turn(site: Site) -> bool:
    """Whether what is called there is called for each element of the loop around it, whatever that is: of a ``for``, or
    of what a ``while`` takes its elements from until nothing is left.
    """
    function = function_around(site)
    path = path_to(function, site.line) if function is not None else ()
    place = max((place for place, (node, _) in enumerate(path) if isinstance(node, LOOPS)), default=None)
    if place is None:
        return False
    loop, part = path[place]
    straight = all(isinstance(node, STRAIGHT) for node, _ in path[place + 1 :])
    leaves = any(isinstance(node, LEAVES) for node in ast.walk(loop))
    return (isinstance(loop, ast.For) or _empties(loop)) and part == "body" and straight and not leaves


def _empties(loop: ast.AST) -> bool:
    """Whether it goes on as long as there is something in what it takes from: ``while queue: … = queue.popleft()``."""
    if not isinstance(loop, ast.While):
        return False
    test = loop.test.args[0] if isinstance(loop.test, ast.Call) and len(loop.test.args) == 1 else loop.test
    return isinstance(test, ast.Name | ast.Attribute) and any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr.startswith("pop")
        and ast.unparse(node.func.value) == ast.unparse(test)
        for each in loop.body
        for node in ast.walk(each)
    )


def go_by_the_element(one: Site, other: Site) -> bool:
    """Whether a ``for`` over a dictionary comes to one line or to the other by the element that it is at.

    Then a rank that is at the other line has its elements in another order; unless something there goes past one. Of
    what is drawn from elsewhere, batches, say, a rank may have fewer.
    """
    paths = paths_of(one, other)
    if paths is None:
        return False
    mine, theirs = paths
    common = shared(mine, theirs)
    loop = next((node for node, _ in reversed(mine[:common]) if isinstance(node, LOOPS)), None)
    branch = mine[common][0] if common < min(len(mine), len(theirs)) else None
    if not isinstance(loop, ast.For) or not isinstance(branch, ast.If) or branch is not theirs[common][0]:
        return False
    of_a_dictionary = isinstance(loop.iter, ast.Call) and name_called(loop.iter) in _OF_A_DICTIONARY
    if not of_a_dictionary or any(isinstance(node, LEAVES) for node in ast.walk(loop)):
        return False
    return not names_in(loop.target).isdisjoint(names_in(branch.test))


def group_goes_by_the_element(site: Site) -> bool:
    """Whether a ``for`` over things, not numbers, or a ``while`` that takes them out of something, comes to that line
    with a group for each of them.
    """
    function = function_around(site)
    path = path_to(function, site.line) if function is not None else ()
    loop = next((node for node, part in reversed(path) if isinstance(node, LOOPS) and part == "body"), None)
    elements = _elements_of(loop) if loop is not None else set()
    if function is None or not elements:
        return False
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call) and node.lineno == site.line)
    groups = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "group"]
    return any(not elements.isdisjoint(names_in(group)) for group in groups)


def is_for_some_rounds(site: Site) -> bool:
    """Whether the condition around it asks for the round of a ``for`` alone: it holds on all ranks then, or on none."""
    function = function_around(site)
    path = path_to(function, site.line) if function is not None else ()
    loops = [node for node, part in path if isinstance(node, ast.For) and part == "body"]
    tests = [node.test for node, part in path if isinstance(node, ast.If) and part == "body"]
    asked = names_in(tests[-1]) if tests else set[str]()
    return bool(asked) and asked <= {name for loop in loops for name in names_in(loop.target)}


def _elements_of(loop: ast.AST) -> set[str]:
    """The names of what a loop is at, in each round."""
    if isinstance(loop, ast.For):
        numbers = isinstance(loop.iter, ast.Call) and name_called(loop.iter) == "range"
        return set() if numbers else names_in(loop.target)
    found = set[str]()
    for node in ast.walk(loop):
        match node:
            case ast.Assign(targets=[target], value=ast.Call() as call) if name_called(call) in _TAKES_OUT:
                found |= names_in(target)
    return found


def is_in_a_comprehension(site: Site) -> bool:
    """Whether what is called there is called for each element of one, in its function."""
    if site.function in IN_PLACE:
        return True
    function = function_around(site)
    found = (node for node in ast.walk(function) if isinstance(node, COMPREHENSIONS)) if function is not None else ()
    return any(_calls_for_each(node, site) for node in found)


def _calls_for_each(comprehension: ast.AST, site: Site) -> bool:
    """Whether what it has of each element is called at `site`: not what a call there is only given."""
    called = site.via.rpartition(".")[2]
    each = [getattr(comprehension, part) for part in ("elt", "key", "value") if hasattr(comprehension, part)]
    calls = (node for part in each for node in ast.walk(part) if isinstance(node, ast.Call))
    return any(call.lineno == site.line and called in ("", name_called(call)) for call in calls)


def is_in_a_loop_without(site: Site, other: Site, *, in_heads: bool = True) -> bool:
    """Whether a loop around `site`, in the function of both, leaves out `other`.

    What stands in the head of a ``for`` is called once, to begin it, or `in_heads` each time that it goes round.
    """
    paths = paths_of(site, other)
    if paths is None:
        return False
    loops = [part for node, part in paths[0][shared(*paths) :] if isinstance(node, LOOPS)]
    return any(in_heads or part not in ("iter", "target") for part in loops)


def fixed_rounds_without(site: Site, other: Site) -> int:
    """How often the one loop around `site` that leaves out `other` comes to it: ``for _ in range(3)``; 0 if unknown."""
    paths = paths_of(site, other)
    apart = paths[0][shared(*paths) :] if paths is not None else ()
    if [type(node) for node, _ in apart if not isinstance(node, ast.expr | ast.Expr)] != [ast.For]:
        return 0  # something else is in between that may lead past it
    match next(node for node, _ in apart if isinstance(node, ast.For)):
        case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(rounds))]), body=body):
            return rounds if not any(isinstance(each, LEAVES) for node in body for each in ast.walk(node)) else 0
    return 0


def comes_round_alone(one: Site, other: Site, *, within: bool = False, past_loops: bool = False) -> bool:
    """Whether a loop brings a rank from `other` to `other` again without `one`, and no other way does.

    So it is where a loop around `other`, or `within` what is called there, leaves out `one`, and what they both lie in
    never goes past `one`; but for `past_loops` around that alone, which may have no round.
    """
    paths = paths_of(one, other)
    if paths is None:
        return False
    mine, theirs = paths
    common = shared(mine, theirs)
    if not within and not any(isinstance(node, LOOPS) for node, _ in theirs[common:]):
        return False
    straight = (*STRAIGHT, *LOOPS) if past_loops else STRAIGHT
    may_be_passed = any(not isinstance(node, straight) for node, _ in mine[common:])
    block = mine[common - 1][0]
    return not may_be_passed and not any(isinstance(node, ast.Continue) for node in ast.walk(block))


def in_one_block(one: Site, other: Site) -> bool:
    """Whether no loop is around one of the two alone."""
    paths = paths_of(one, other)
    if paths is None:
        return False
    common = shared(*paths)
    return not any(isinstance(node, LOOPS) for path in paths for node, _ in path[common:])
