"""A rank that failed, and meets the others in the wrong call on its way out: that it failed is the cause.

What stands in a ``finally``, or ends a ``with``, is called by who goes on and by who has failed alike. So a collective
there meets another one of the others, and says nothing of the error. Who catches that, and goes on, is not on its way
out: it has left out what it did not come to.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rankdrill.diagnosis.calls.tree import function_around, path_to
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.step import HANDED_OVER, Site

__all__ = ["Failure", "Left", "lost_on_the_way_out", "with_ended_thread"]

_ANY = frozenset({"BaseException", "Exception"})
_SWALLOWS = ("suppress(", "raises(")


@dataclass(frozen=True)
class Left:
    """A function of the user's that runs still: in which line of it the error came, or will, and where it is now."""

    file: str
    function: str
    failed: int
    now: int


@dataclass(frozen=True)
class Failure:
    """That a rank made `call` at `site` while it handled `error`, in words, which was `raised` in that line.

    `types` are the names of the error's type and of what that is derived from; `through` the functions that the error
    has come to or is still to come to, the innermost first. Where a `thread` of that name ended by it there is no call.
    """

    error: str
    types: tuple[str, ...]
    raised: Site | None
    call: str
    site: Site | None
    through: tuple[Left, ...]
    thread: str = ""


def lost_on_the_way_out(finding: Finding, failures: Mapping[int, Sequence[Failure]]) -> Finding:
    """`finding`, or the failure behind it, where ranks met the others in it on their way out; `failures` by rank."""
    behind: dict[int, Failure] = {}
    for rank, each in failures.items():
        found = next((one for one in each if _is_met(finding, rank, one) and _leaves(one)), None)
        if found is not None:
            behind[rank] = found
    involved = {rank for side in finding.sides for rank in side.ranks}
    if not behind or behind.keys() >= involved:
        return finding
    sides = [_failed(behind, error) for error in dict.fromkeys(one.error for one in behind.values())]
    sides += [_called(behind, call) for call in dict.fromkeys(one.call for one in behind.values())]
    sides += [side for side in finding.sides if behind.keys().isdisjoint(side.ranks)]
    culprits = tuple(sorted(behind))
    return Finding(FindingKind.LOST_RANK, finding.step, "", tuple(sides), culprits, finding.group, finding.number)


def with_ended_thread(finding: Finding, failures: Mapping[int, Sequence[Failure]]) -> Finding:
    """`finding`, and of a call that others made in a thread which error has ended that of the one rank without it."""
    if finding.kind is not FindingKind.MISSING or len(finding.culprits) != 1:
        return finding
    first, *others = finding.sides
    within = {place for site in first.sites for place in _functions_in_the_thread(site)}
    ended = (each for each in failures.get(finding.culprits[0], ()) if each.thread)
    failed = next((each for each in ended if any((left.file, left.function) in within for left in each.through)), None)
    if failed is None or first.ranks != finding.culprits:
        return finding
    did = f"its thread {failed.thread!r} ended by {failed.error}"
    return replace(finding, sides=(first, side_of(first.ranks, did, [failed.raised]), *others))


def _functions_in_the_thread(site: Site | None) -> list[tuple[str, str]]:
    """Those of the user's that the call there was made in, up to where a thread was begun; none if none was."""
    found: list[tuple[str, str]] = []
    while site is not None:
        if site.via == HANDED_OVER:
            return found
        found.append((site.file, site.function))
        site = site.caller
    return []


def _is_met(finding: Finding, rank: int, failure: Failure) -> bool:
    """Whether it is by that call that the rank comes into the finding."""
    sites = [site for side in finding.sides for each, site in zip(side.ranks, side.sites, strict=True) if each == rank]
    return failure.site is not None and any(site is not None and site.place == failure.site.place for site in sites)


def _leaves(failure: Failure) -> bool:
    """Whether the source says that the error goes on outward, once the call is over."""
    if not failure.through:
        return False
    innermost, *outer = failure.through
    path = _path(innermost)
    passed = next((at for at, (node, _) in enumerate(path) if _goes_on(node, innermost)), None)
    if passed is None:
        return False
    return not any(_catches(node, part, failure.types) for node, part in path[:passed]) and not any(
        _catches(node, part, failure.types) for left in outer for node, part in _path(left)
    )


def _path(left: Left) -> Sequence[tuple[ast.AST, str]]:
    """What is around the line that failed, from the function down."""
    function = function_around(Site(left.file, left.failed, left.function))
    return path_to(function, left.failed) if function is not None else ()


def _goes_on(node: ast.AST, left: Left) -> bool:
    """Whether it is `node` that makes the call for whoever leaves it, and then lets the error go on."""
    if isinstance(node, ast.With | ast.AsyncWith):
        return node.lineno <= left.now < node.body[0].lineno and left.failed >= node.body[0].lineno
    if not isinstance(node, ast.Try):
        return False
    if _holds(node.finalbody, left.now) and not _holds(node.finalbody, left.failed):
        return not any(isinstance(each, ast.Return) for part in node.finalbody for each in ast.walk(part))
    handler = next((each for each in node.handlers if _holds(each.body, left.now)), None)
    return handler is not None and isinstance(handler.body[-1], ast.Raise)


def _catches(node: ast.AST, part: str, types: Collection[str]) -> bool:
    """Whether an error that comes out of that `part` of `node` ends there, as far as can be told."""
    if isinstance(node, ast.With | ast.AsyncWith) and part == "body":
        return any(word in ast.unparse(item.context_expr) for item in node.items for word in _SWALLOWS)
    if not isinstance(node, ast.Try) or part != "body":
        return False
    caught = next((each for each in node.handlers if _is_for(each, types)), None)
    return caught is not None and not isinstance(caught.body[-1], ast.Raise)


def _is_for(handler: ast.ExceptHandler, types: Collection[str]) -> bool:
    if handler.type is None:
        return True
    named = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(ast.unparse(each).rpartition(".")[2] in {*types, *_ANY} for each in named)


def _holds(block: Sequence[ast.stmt], line: int) -> bool:
    return bool(block) and block[0].lineno <= line <= (block[-1].end_lineno or block[-1].lineno)


# --------------------------------------------------------------------------------------------- in words


def _failed(behind: Mapping[int, Failure], error: str) -> Side:
    ranks = [rank for rank, one in behind.items() if one.error == error]
    verb = "raises" if len(ranks) == 1 else "raise"
    return side_of(ranks, f"{verb} {error}", [behind[rank].raised for rank in ranks])


def _called(behind: Mapping[int, Failure], call: str) -> Side:
    ranks = [rank for rank, one in behind.items() if one.call == call]
    did = f"{'calls' if len(ranks) == 1 else 'call'} {call} on the way out"
    return side_of(ranks, did, [behind[rank].site for rank in ranks])
