"""How a rank went past a call that it left out, where the source leaves one way, or two.

Past a line lead an ``if`` around it, one before it that ends in a return, a ``continue`` or a ``break``, the end of a
loop around it, and an error that a handler around it caught. Where the rank is now, and whether it has come there
before, rule some of them out. Of more than two that are left none is told, and none either where one of several
handlers may have caught an error. Where the line itself may have been come to without the call, as a backward pass
under DDP's `no_sync`, only a condition is told that asks for the rank.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile

from rankdrill.diagnosis.calls.asking import asks_for_the_rank
from rankdrill.diagnosis.calls.common_caller import in_any_loop
from rankdrill.diagnosis.calls.halves import branch_of_its_half
from rankdrill.diagnosis.calls.loops import is_in_a_loop
from rankdrill.diagnosis.calls.tree import (
    COMPREHENSIONS,
    IN_PLACE,
    calls_at,
    function_around,
    name_called,
    names_in,
    path_to,
    tree_of,
)
from rankdrill.diagnosis.calls.ways import (
    Node,
    Way,
    catching,
    holds,
    is_around,
    is_fixed,
    kept_by,
    may_be_thrown_past,
    may_change,
    ways_at,
    would_have_shown,
    yields_before,
)
from rankdrill.diagnosis.finding import Finding, FindingKind, side_of
from rankdrill.ledger import LedgerView, State
from rankdrill.site import one_call, outward
from rankdrill.step import BATCH, HANDED_OVER, Site
from rankdrill.whose import Whose, whose_file

__all__ = [
    "chooses_between",
    "comes_with_each_round",
    "goes_as_far_as_the_rank_says",
    "may_be_left_out",
    "takes_turns_by_rank",
    "with_condition",
]

MOST_WAYS = 2  # told of one call
MOST_SHOWN = 60  # characters of a condition
_BOUNDS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_KINDS = frozenset({FindingKind.MISSING, FindingKind.UNMATCHED})


def with_condition(finding: Finding, views: Sequence[LedgerView] | Mapping[int, LedgerView]) -> Finding:
    """`finding`, and of a call that was left out how who did went past it, if it can be said: the culprits, or one side
    of two where nobody is in the majority.
    """
    first, *others = finding.sides
    if any(side.ranks == first.ranks and side.goes_past for side in others):
        return finding
    if finding.kind not in _KINDS or finding.culprits not in (first.ranks, ()) or not first.leaves_out:
        return finding
    site, *more = dict.fromkeys(first.sites)
    if site is None or more or site.via == BATCH:  # which was come to, with other messages
        return finding
    now = next((side.sites[0] for side in others if side.ranks == first.ranks and not side.returned), None)
    last = next((side.sites[0] for side in others if side.ranks == first.ranks and side.returned), None)
    if first.ranks and not any(side.ranks == first.ranks for side in others):
        now, last = _is_at(views[first.ranks[0]])
    if now is not None and now == site and site.via:  # a library left it out, in what it is at still
        return finding
    again = all(_has_come(site, views[rank]) for rank in first.ranks)
    if again and not in_any_loop(site):  # it is in there, it may be, and what it calls makes several
        return finding
    found = _ways_past(site, now, last, _made_since(site, views[first.ranks[0]]), again=again)
    if not 0 < len(found) <= MOST_WAYS:
        return finding
    *either, (line, words) = found
    told = "".join(f"{other}, at {at}, or by " for at, other in either) + words
    did = f"{'goes' if len(first.ranks) == 1 else 'go'} past it by {told}"
    return replace(finding, sides=(first, side_of(first.ranks, did, [line] * len(first.ranks)), *others))


def may_be_left_out(site: Site) -> bool:
    """Whether something in its own function but the end of a loop leads past `site`, once that has been come to."""
    function = function_around(site)
    if function is None:
        return True
    path = path_to(function, site.line)
    ways = ways_at(path, site.line, function)
    return may_be_thrown_past(path, None) or any(isinstance(way.node, ast.If) for way in ways)


def chooses_between(one: Site, other: Site) -> bool:
    """Whether an ``if`` with its ``elif`` and ``else`` leads to one of the two or to the other, or to a third in their
    place, and nothing else but the end of a loop leads past either: who is not at the one has not gone past both.

    A loop may have fewer rounds on one rank: it is to have as many on all, or the ``if`` asks for the rank itself.
    """
    function, tree = function_around(one), tree_of(one.file)
    if function is None or tree is None or function_around(other) is not function:
        return False
    paths = [(path_to(function, site.line), site.line) for site in (one, other)]
    if any(may_be_thrown_past(path, None) for path, _ in paths):
        return False
    ways = [ways_at(path, line, function, tree) for path, line in paths]
    asked = [[way.node for way in each if isinstance(way.node, ast.If)] for each in ways]
    chain = max(asked, key=len)
    loops = [node for node, part in paths[0][0] if isinstance(node, ast.For | ast.AsyncFor | ast.While)]
    fixed = all(is_fixed(loop, function, tree) for loop in loops)
    if not fixed and not any(asks_for_the_rank(each.test, tree) for each in chain):
        return False
    linked = all(first.orelse == [then] for first, then in pairwise(chain))
    return linked and bool(chain[-1:] and chain[-1].orelse) and all(each == chain[: len(each)] != [] for each in asked)


def comes_with_each_round(site: Site) -> bool:
    """Whether a loop is around it, or around one of the calls that led to it, no round of which leads past it."""
    for each in outward(site):
        if may_be_left_out(each):
            return False
        if is_in_a_loop(each):
            return True
    return False


def goes_as_far_as_the_rank_says(site: Site) -> bool:
    """Whether it is come to as often as the rank says: by a loop over so many, or an ``if turn < mine`` in one."""
    loops, compared, tree = _turns_around(site)
    bounds = [each for each in compared if any(isinstance(sign, _BOUNDS) for sign in each.ops)]
    return tree is not None and any(asks_for_the_rank(each, tree) for each in (*(loop.iter for loop in loops), *bounds))


def takes_turns_by_rank(site: Site) -> bool:
    """Whether it is come to in those turns of a loop that are the rank's: ``if turn % size == rank``."""
    _, compared, tree = _turns_around(site)
    equal = [each for each in compared if all(isinstance(sign, ast.Eq) for sign in each.ops)]
    plain = [each for each in equal if not any(isinstance(part, ast.Tuple) for part in ast.walk(each))]
    return tree is not None and any(asks_for_the_rank(each, tree) for each in plain)


def _turns_around(site: Site) -> tuple[list[ast.For], list[ast.Compare], ast.Module | None]:
    """The loops around it, what the conditions around it compare with their turns, and the file."""
    function, tree = function_around(site), tree_of(site.file)
    if function is None or tree is None:
        return [], [], None
    path = path_to(function, site.line)
    loops = [node for node, part in path if isinstance(node, ast.For) and part == "body"]
    turns = {name for loop in loops for name in names_in(loop.target)}
    tests = [each for node, _ in path if isinstance(node, ast.If) for each in ast.walk(node.test)]
    compared = [each for each in tests if isinstance(each, ast.Compare) and not turns.isdisjoint(names_in(each))]
    return loops, compared, tree


def _is_at(view: LedgerView) -> tuple[Site | None, Site | None]:
    """Where the rank is in a call, or was refused one; if in none, where it made its last."""
    newest = view.last_open or view.last
    site = newest.step.site if newest is not None else None
    return (None, site) if newest is None or newest.state is State.ENDED else (site, None)


def _has_come(site: Site, view: LedgerView) -> bool:
    return any(record.step.site == site for record in view.records)


def _made_since(site: Site, view: LedgerView) -> set[tuple[str, int]]:
    """The lines of calls that the rank has made since it was at `site` last, and those that led to them."""
    behind = takewhile(lambda record: record.step.site != site, reversed(view.records))
    return {line for record in behind if record.step.site is not None for line in record.step.site.lines}


def _ways_past(
    site: Site, now: Site | None, last: Site | None, made: Collection[tuple[str, int]], *, again: bool
) -> list[tuple[Site, str]]:
    """The lines of the ways past `site` for a rank that is at `now`, the nearest first, and what stands there.

    `again` says that the rank had come to `site` before, `made` what it has called since. None as `now` says that it
    has returned, after what it called at `last`: it has been in what called that.
    """
    found: list[tuple[Site, Way]] = []
    for each in outward(site):
        function, tree = function_around(each), tree_of(each.file)
        if each is not site and _called_it(each, last):
            break
        if each.via == HANDED_OVER:  # an error may have ended the thread
            break
        if each.function in IN_PLACE and each.caller is not None:  # the line is told as its function's, too
            continue
        if function is None or tree is None or whose_file(each.file) in (Whose.TORCH, Whose.OURS):
            break
        by_rank = each.place == site.place and not _is_called_there(site, function)
        path = tuple(pair for pair in path_to(function, each.line) if not _is_for_all(pair[0]))
        there = next((line for line in outward(now) if _is_of_one_run(line, each, function)), None)
        ways = ways_at(path, each.line, function, tree)
        if there is not None:
            ways = [way for way in ways if not is_around(way, each.line, there.line)]
            ways = [way for way in ways if holds(way.taken, there.line)] or ways
        ways = [way for way in ways if way.node is not branch_of_its_half(each)]
        there_made = [line for file, line in made if file == each.file]
        ways = [way for way in ways if not would_have_shown(way, there_made)]
        if again:
            ways = [way for way in ways if may_change(way, function, path, tree)]
        handlers = catching(path, there, each.line if each is site else 0)
        if handlers is None:
            return []
        if by_rank:  # else the rank may have come to the line, and not to the call
            ways, handlers = [way for way in ways if _asks_for_the_rank(way, tree)], []
        found += [(each, way) for way in sorted(ways, key=lambda way: -way.node.lineno)]
        found += [(each, Way(handler)) for handler in handlers]
        found += [(each, Way(decorator)) for decorator in (kept_by(function) if again else ())]
        found += [(each, Way(statement)) for statement in yields_before(function, each.line)]
        if there is not None or by_rank:
            break
    # Its callers are told with the call.
    return [(Site(each.file, way.node.lineno, each.function), _words(way.node)) for each, way in found]


def _asks_for_the_rank(way: Way, tree: ast.AST) -> bool:
    return isinstance(way.node, ast.If) and asks_for_the_rank(way.node.test, tree)


def _is_for_all(node: ast.AST) -> bool:
    """Whether it is a comprehension that leaves nothing out."""
    return isinstance(node, COMPREHENSIONS) and not any(generator.ifs for generator in node.generators)


def _called_it(line: Site, last: Site | None) -> bool:
    """Whether what was called at `last` was called by that line, which is in no loop."""
    callers = outward(last.caller) if last is not None else ()
    alike = any(each.place == line.place and one_call(each.caller, line.caller) for each in callers)
    return alike and not in_any_loop(line)


def _is_of_one_run(line: Site, other: Site, function: ast.AST) -> bool:
    """Whether both are lines of one run of `function`, as far as is known."""
    return function_around(line) is function and one_call(line.caller, other.caller)


def _words(node: Node) -> str:
    head = ast.unparse(node).partition("\n")[0].removesuffix(":")
    shown = head if len(head) <= MOST_SHOWN else f"{head[: MOST_SHOWN - 1]}…"
    if isinstance(node, ast.ExceptHandler):
        return f"an error that `{shown}` caught"
    if isinstance(node, ast.Expr):
        return f"an error at `{shown}`"
    if isinstance(node, ast.expr):
        return f"what `{shown}` has kept"
    return f"`{shown}`" if isinstance(node, ast.If) else f"the end of `{shown}`"


def _is_called_there(site: Site, function: ast.AST) -> bool:
    """Whether the user's own line calls it by its name, as far as that is known; or a module, each of whose forward
    passes makes it, unless something in that file is told not to.
    """
    name = site.via.rpartition(".")[2]
    called = {name_called(call) for call in calls_at(function, site.line)}
    if not name or name in called:
        return True
    return name == "forward" and bool(called) and not any("no_sync" in line for line in linecache.getlines(site.file))
