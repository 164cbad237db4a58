"""Messages that are kept each under a name that somebody else has chosen: the number of a rank, or one of a list.

Who counts what comes, from 0 on, may mean just that. Who counts from 1 on, as ranks beside the first are, or goes
through names, means that each message is that one's.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from rankdrill.diagnosis.races.written import Written, name_called

__all__ = ["asks_for_names", "goes_by_names", "is_named_later", "rank_beside", "stands_for_a_sender"]

_SHOW = frozenset({"dump", "dumps", "info", "log", "print", "save"})
_IN_ANY_ORDER = frozenset(
    {"all", "any", "Counter", "fsum", "len", "max", "mean", "median", "min", "set", "sorted", "sum"}
)
_BY_KEY = frozenset({"max", "min", "nlargest", "nsmallest", "sorted"})


def stands_for_a_sender(written: Written, index: ast.AST) -> bool:
    """Whether `index` runs over the numbers of the ranks beside the first, or over a list of names."""
    if not isinstance(index, ast.Name):
        return False
    for loop in written.around(index):
        match loop:
            case ast.For(target=ast.Name(id=name)) if name == index.id:
                return _are_names(written, loop.iter)
            case ast.For(target=ast.Tuple(elts=[ast.Name(id=first), ast.Name(id=second)])) if index.id in (
                first,
                second,
            ):
                return _are_named_in_pairs(written, loop.iter, is_first=index.id == first)
    return False


def rank_beside(written: Written, index: ast.Name) -> str:
    """The number of the rank whose name `index` is, in a loop over a dictionary of names by ranks; else nothing."""
    for loop in written.around(index):
        match loop:
            case ast.For(target=ast.Tuple(elts=[ast.Name(id=rank), ast.Name(id=name)])) if name == index.id:
                listed = _dictionary_of(written, loop.iter)
                return rank if listed is not None and _are_all(listed.keys, int) else ""
    return ""


def _are_named_in_pairs(written: Written, iterated: ast.expr, *, is_first: bool) -> bool:
    """The same of one of the two that a loop over a dictionary has, where that is written out."""
    listed = _dictionary_of(written, iterated)
    if listed is None:
        return False
    return _are_all(listed.keys, (str, int)) if is_first else _are_all(listed.values, str)


def _dictionary_of(written: Written, iterated: ast.expr) -> ast.Dict | None:
    """The one, of several entries, whose ``items()`` are run over."""
    match iterated:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="items")):
            for each in written.bindings(name)[:1]:
                given = written.value_of(each)
                return given if isinstance(given, ast.Dict) and len(given.keys) > 1 else None
    return None


def _are_all(given: Sequence[ast.expr | None], kinds: type | tuple[type, ...]) -> bool:
    return all(isinstance(each, ast.Constant) and isinstance(each.value, kinds) for each in given)


def _are_names(written: Written, iterated: ast.expr) -> bool:
    match iterated:
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=1), _]):
            return True
        case ast.Name(id=name):
            return any(_is_list_of_names(written.value_of(each)) for each in written.bindings(name)[:1])
    return _is_list_of_names(iterated)


def _are_texts(written: Written, given: ast.expr) -> bool:
    """Whether it is a list of names, and not of numbers, by which ranks are told that may get whatever came."""
    if isinstance(given, ast.Name):
        return any(_is_list_of_texts(written.value_of(each)) for each in written.bindings(given.id)[:1])
    return _is_list_of_texts(given)


def _is_list_of_texts(node: ast.AST | None) -> bool:
    return (
        _is_list_of_names(node)
        and isinstance(node, ast.List | ast.Tuple)
        and all(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in node.elts)
    )


def _is_list_of_names(node: ast.AST | None) -> bool:
    match node:
        case ast.List(elts=[_, *_] as names) | ast.Tuple(elts=[_, *_] as names):
            return all(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in names)
    return False


def asks_for_names(written: Written, use: ast.Name) -> bool:
    """Whether it is only the names under which messages are kept that are looked at."""
    match written.parent(use):
        case ast.Attribute(attr="keys"):
            return True
        case ast.Call(func=ast.Name(id="sorted" | "len" | "set"), args=[given], keywords=[]):
            return given is use and written.is_bound_to(use.id, ast.Dict)
        case ast.Compare(ops=[ast.In() | ast.NotIn()]):
            return True
    return False


def goes_by_names(written: Written, use: ast.Name) -> bool:
    """Whether what is kept is shown or returned with its names, or read by one, or asked whose is the best."""
    if not written.is_bound_to(use.id, ast.Dict):
        return False
    if _asks_whose_is_the_best(written, use):
        return True
    match written.parent(use):
        case ast.Return() | ast.FormattedValue():
            return True
        case ast.Call() as call if call.func is not use:
            return name_called(call) in _SHOW
        case ast.Subscript(value=given, ctx=ast.Load()) as read if given is use:
            return not _in_any_order(written, read)
    return False


def _asks_whose_is_the_best(written: Written, use: ast.Name) -> bool:
    """Whether names are put in order by what is kept under them, in ``max(kept, key=kept.get)`` say, and are wanted.

    Who only goes on to read what is kept under them asks for values, which are in an order of their own.
    """
    call = next((each for each in written.around(use) if name_called(each) in _BY_KEY), None)
    if not isinstance(call, ast.Call) or not any(each.arg == "key" for each in call.keywords):
        return False
    for given in call.args:
        match given:
            case ast.Name(id=name) | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="keys")):
                if name == use.id:
                    return _is_wanted(written, call, use.id)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="items")) if name == use.id:
                return isinstance(written.parent(call), ast.Return | ast.FormattedValue)
    return False


def _is_wanted(written: Written, call: ast.Call, kept: str) -> bool:
    """Whether the name, or names, that `call` gives are for more than to read what is `kept` under them."""
    match written.parent(call):
        case ast.Assign(targets=[ast.Name(id=name)]):
            return any(not _is_read_by(written, use, kept) for use in written.uses(name))
        case ast.Return() | ast.FormattedValue():
            return True
        case ast.Call() as outer:
            return name_called(outer) in _SHOW
    return False


def _is_read_by(written: Written, use: ast.Name, kept: str) -> bool:
    match written.parent(use):
        case ast.Subscript(value=ast.Name(id=name), slice=index):
            return name == kept and index is use
    return False


def is_named_later(written: Written, use: ast.Name) -> bool:
    """Whether the place of a number is given a name of its own, as the others are: ``{1: rows[0], 2: rows[1]}``; or all
    are, one after the other: ``zip(["encoder", "decoder"], rows)``.
    """
    match written.parent(use):
        case ast.Call(func=ast.Name(id="zip"), args=[*given]):
            return any(_are_texts(written, each) for each in given if each is not use)
        case ast.Subscript(value=given, slice=ast.Constant(value=int()), ctx=ast.Load()) as read if given is use:
            around = written.parent(read)
            around = written.parent(around) if isinstance(around, ast.keyword) else around
            places = _places_in(around, use.id)
            return len(places) > 1 and read in places.values()
    return False


def _places_in(node: ast.AST, name: str) -> dict[int, ast.expr]:
    """What a call or a dictionary has, under names, of places of `name` as they are: by their numbers."""
    given = node.values if isinstance(node, ast.Dict) else [each.value for each in getattr(node, "keywords", [])]
    found: dict[int, ast.expr] = {}
    for each in given:
        match each:
            case ast.Subscript(value=ast.Name(id=its), slice=ast.Constant(value=int(number))) if its == name:
                found[number] = each
    return found


def _in_any_order(written: Written, read: ast.AST) -> bool:
    """Whether something is made of it, before its statement ends, that comes to the same in whatever order."""
    for around in written.around(read):
        if isinstance(around, ast.stmt):
            return isinstance(around, ast.AugAssign)
        if name_called(around) in _IN_ANY_ORDER:
            return True
    return False
