"""Which keys a call may set or get, as far as the source says: a pattern, of keys that are put together at run time."""

from __future__ import annotations

import ast
import re

from rankdrill.diagnosis.calls.bound import bound_to

__all__ = ["names_key", "pattern_of"]

_ANYTHING = ".+"
_OWN_RANK = re.compile(
    r"^((self|cls|args|config|context)\.)?_*((global|my|own|this|world)_)?rank(_id)?$|^rank\.index$|(^|\.)get_rank\(\)$"
)
_OF_RANK = re.compile(r"\0(-?\d+)\0")  # stands for the number of the rank that it is set by, and so much more
_SLOT = re.compile(r"%[-#0-9.]*[a-z]|\{[^{}]*\}")
MOST_STEPS = 8  # from a name to what it was assigned, and on


def names_key(pattern: str, key: str, rank: int | None = None) -> bool:
    """Whether `pattern` is that of `key`, or of its end, for that `rank`, or for any: prefixes go before it."""
    told = _OF_RANK.sub(lambda of: _ANYTHING if rank is None else str(rank + int(of[1])), pattern)
    return re.search(f"(^|[/…])({told})$", key) is not None


def pattern_of(given: ast.expr, tree: ast.AST | None, steps: int = MOST_STEPS) -> str | None:
    """What the key that is `given` looks like, names looked up in `tree`, a file or a function; None where that may be
    anything.
    """
    match given:
        case ast.Constant(value=str(text)):
            return re.escape(text)
        case ast.JoinedStr(values=parts):
            return "".join(pattern_of(part, tree, steps) or _ANYTHING for part in parts)
        case ast.FormattedValue(value=value, format_spec=None):
            more = _beyond_the_rank(value, tree)
            return f"\0{more}\0" if more is not None else pattern_of(value, tree, steps)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            both = pattern_of(left, tree, steps), pattern_of(right, tree, steps)
            return "".join(part or _ANYTHING for part in both) if any(both) else None
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
            return _with_slots(text)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return _with_slots(text)
        case ast.IfExp(body=one, orelse=other):
            either = pattern_of(one, tree, steps), pattern_of(other, tree, steps)
            return f"(?:{'|'.join(filter(None, either))})" if all(either) else None
        case ast.List(elts=[_, *_] as keys):
            each = [pattern_of(key, tree, steps) for key in keys]
            return "|".join(filter(None, each)) if all(each) else None
        case ast.Name(id=name) | ast.Attribute(attr=name) if tree is not None and steps:
            known = _assigned_once(name, tree)
            return pattern_of(known, tree, steps - 1) if known is not None else None
        case _:
            return None


def _beyond_the_rank(value: ast.expr, tree: ast.AST | None) -> int | None:
    """By how much it is more than the rank that comes there; None where it is not known to go by that."""
    match value:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=ast.Constant(value=int(by))):
            rank = _beyond_the_rank(left, tree)
            return rank + (by if isinstance(op, ast.Add) else -by) if rank is not None else None
        case ast.Name(id=name):
            return 0 if tree is not None and _is_the_rank(name, tree) else None
        case ast.Attribute() | ast.Call():
            return 0 if _OWN_RANK.search(ast.unparse(value)) else None
    return None


def _is_the_rank(name: str, tree: ast.AST) -> bool:
    """Whether whatever is called so in `tree` is the rank, as far as that says: functions are given it by its name."""
    values, stored, _ = bound_to(name, tree)
    return 0 < len(values) == stored and all(_OWN_RANK.search(ast.unparse(value)) for value in values)


def _with_slots(text: str) -> str:
    return _ANYTHING.join(re.escape(part) for part in _SLOT.split(text))


def _assigned_once(name: str, tree: ast.AST) -> ast.expr | None:
    """What the name, or the attribute of that name, stands for all over `tree`."""
    values, stored, given = bound_to(name, tree)
    return values[0] if len(values) == stored == 1 and not given else None
