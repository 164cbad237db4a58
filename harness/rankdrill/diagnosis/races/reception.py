"""A receive from anybody as it is written: into what, and whether the code can tell who sent what came.

Of a helper that receives into what it is given, and does nothing else with that, it is the call of the helper that
counts, in the function that called it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rankdrill.diagnosis.calls.tree import function_around
from rankdrill.diagnosis.races.written import Written, name_called
from rankdrill.step import Site

__all__ = ["Reception", "reception_at", "receptions_in"]

MOST_CALLERS = 3  # that are followed outward
_RECEIVE = frozenset({"recv", "irecv"})
_SENDS = frozenset({"send", "isend"})
_IN_PLACE = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_WHO = ("source_rank", "_source_rank")


@dataclass(frozen=True)
class Reception:
    """`call`, in the function `written`, receives into the expression `into`, and nobody asks who sent that.

    `waits`: before anything else is done, what was sent is there.
    """

    written: Written
    call: ast.Call
    into: ast.expr
    waits: bool


def reception_at(site: Site) -> Reception | None:
    """The receive at `site`; None where it can be known who sent, or the source does not say clearly enough."""
    found: Reception | None = None
    for place in list(_functions(site))[:MOST_CALLERS]:
        function = function_around(place)
        if function is None:
            return None
        written = Written(function)
        call = _call_at(written, place, _RECEIVE if found is None else {_name(found.written)})
        into = None if call is None else _into(call) if found is None else _passed(found, call)
        if call is None or into is None:
            return None
        waits = found.waits if found is not None else _waits(written, call)
        found = Reception(written, call, into, waits)
        if not _drops_what_it_gives(found):
            return None
        if not _is_handed_in(found):
            return found
    return None


def receptions_in(written: Written, among: Callable[[ast.Call], bool] = lambda call: True) -> list[Reception]:
    """All receives of a function, in the order of its text; nothing where one names its sender, or can know it.

    Of these `among` says which are looked at.
    """
    called = (node for node in ast.walk(written.function) if isinstance(node, ast.Call))
    calls = [node for node in called if name_called(node) in _RECEIVE and among(node)]
    found: list[Reception] = []
    for call in sorted(calls, key=lambda node: node.lineno):
        into = _into(call)
        if into is None or _names_a_sender(call):
            return []
        each = Reception(written, call, into, _waits(written, call))
        if not _drops_what_it_gives(each):
            return []
        found.append(each)
    return found


def _names_a_sender(call: ast.Call) -> bool:
    named = [each.value for each in call.keywords if each.arg in ("src", "group_src")] + call.args[1:2]
    return any(not (isinstance(each, ast.Constant) and each.value is None) for each in named)


def _functions(site: Site) -> Iterator[Site]:
    """The site and its callers; a comprehension is part of the function that it is written in."""
    place: Site | None = site
    while place is not None:
        yield place
        while place.function in _IN_PLACE and place.caller is not None:
            place = place.caller
        place = place.caller


def _call_at(written: Written, place: Site, names: frozenset[str] | set[str]) -> ast.Call | None:
    found = [
        node
        for node in ast.walk(written.function)
        if isinstance(node, ast.Call)
        and name_called(node) in names
        and node.lineno <= place.line <= (node.end_lineno or node.lineno)
    ]
    return found[0] if len(found) == 1 else None


def _into(call: ast.Call) -> ast.expr | None:
    given = [each.value for each in call.keywords if each.arg == "tensor"]
    return given[0] if given else _argument(call.args, 0)


def _argument(given: Sequence[ast.expr], at: int) -> ast.expr | None:
    plain = len(given) > at and not any(isinstance(each, ast.Starred) for each in given[: at + 1])
    return given[at] if plain else None


def _name(written: Written) -> str:
    return str(getattr(written.function, "name", ""))


def _is_handed_in(found: Reception) -> bool:
    return isinstance(found.into, ast.Name) and found.into.id in found.written.parameters


def _passed(inner: Reception, call: ast.Call) -> ast.expr | None:
    """What the caller gives the helper to receive into, if the helper does nothing else with it."""
    assert isinstance(inner.into, ast.Name)
    name, written = inner.into.id, inner.written
    if len(written.uses(name)) != 1 or written.bindings(name) or _gives_something(written):
        return None
    if written.loop_around(inner.call) is not None:  # again and again into the same: who reads it, reads the last
        return None
    at = written.parameters.index(name)
    if isinstance(call.func, ast.Attribute) and written.parameters[0] in ("self", "cls"):
        at -= 1
    given = [each.value for each in call.keywords if each.arg == name]
    return given[0] if given else _argument(call.args, at)


def _gives_something(written: Written) -> bool:
    """Whether the helper returns what its caller might use; the rank is followed if it is all that is returned."""
    returned = [node for node in ast.walk(written.function) if isinstance(node, ast.Return) and node.value is not None]
    return any(name_called(each.value) not in _RECEIVE for each in returned if each.value is not None)


def _drops_what_it_gives(found: Reception) -> bool:
    """Whether the rank that the call gives is lost at once, or where it is returned to, and no request is asked."""
    written, call = found.written, found.call
    named = {each.attr for each in ast.walk(written.function) if isinstance(each, ast.Attribute)}
    if not named.isdisjoint(_WHO):
        return False
    if name_called(call) == "irecv":
        return _waited_at_once(written, call) or _is_only_waited_for(written, call)
    given = written.parent(call)
    if isinstance(given, ast.Return) and _is_handed_in(found):
        return True
    return _is_dropped(written, given, call)


def _is_dropped(written: Written, given: ast.AST, call: ast.AST) -> bool:
    match given:
        case ast.Expr():
            return True
        case ast.ListComp(elt=elt) if elt is call:
            return _is_dropped(written, written.parent(given), given)
        case ast.Assign(targets=[ast.Name(id=name)]):
            return all(_is_answered(written, each) for each in written.uses(name))
    return False


def _is_answered(written: Written, use: ast.AST) -> bool:
    """Whether it is only said there whom an answer goes to: that says nothing of what is kept."""
    call = written.parent(use)
    if isinstance(call, ast.keyword):
        call = written.parent(call) if call.arg in ("dst", "group_dst") else call
    elif isinstance(call, ast.Call) and call.args[1:2] != [use]:
        return False
    return isinstance(call, ast.Call) and name_called(call) in _SENDS


def _waited_at_once(written: Written, call: ast.Call) -> bool:
    method = written.parent(call)
    return isinstance(method, ast.Attribute) and method.attr == "wait"


def _waits(written: Written, call: ast.Call) -> bool:
    return name_called(call) == "recv" or _waited_at_once(written, call)


def _is_only_waited_for(written: Written, call: ast.Call) -> bool:
    """Whether the request is kept here, by a name or in a list, and not handed on."""
    match written.parent(call):
        case ast.Assign(targets=[ast.Name(id=name)]):
            return all(_is_method(written, each) for each in written.uses(name))
        case ast.ListComp(elt=elt) as listed if elt is call:
            match written.parent(listed):
                case ast.Assign(targets=[ast.Name(id=name)]):
                    return all(_is_run_over(written, each) for each in written.uses(name))
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append")):
            uses = written.uses(name)
            return all(_is_run_over(written, each) or _is_method(written, each, "append") for each in uses)
    return False


def _is_method(written: Written, node: ast.AST, *names: str) -> bool:
    method = written.parent(node)
    return isinstance(method, ast.Attribute) and method.attr in (names or ("wait", "is_completed"))


def _is_run_over(written: Written, node: ast.AST) -> bool:
    """Whether a loop runs over it, to wait for each."""
    loop = written.parent(node)
    match loop:
        case ast.For(target=ast.Name(id=name)) | ast.comprehension(target=ast.Name(id=name)):
            around = loop if isinstance(loop, ast.For) else written.parent(loop)
            inside = [each for each in ast.walk(around) if isinstance(each, ast.Name) and each.id == name]
            return all(_is_method(written, each) for each in inside if isinstance(each.ctx, ast.Load))
    return False
