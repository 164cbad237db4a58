"""Helpers that set keys of a store: what a call of one sets, in words of its caller."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping

from rankdrill.diagnosis.calls.tree import functions_in, name_called

__all__ = ["SETTING", "handed_to", "keys_set_by", "setting_calls"]

SETTING = frozenset({"add", "append", "compare_set", "multi_set", "queue_push", "set"})
"""The methods of stores that may set a key."""
_OF_ITSELF = ("self", "cls")


def setting_calls(function: ast.AST) -> Iterator[ast.Call]:
    """The calls in it that look as if they set a key."""
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call) and node.args)
    return (call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in SETTING)


def keys_set_by(call: ast.Call, tree: ast.Module) -> Iterator[ast.expr]:
    """The keys that the one function of that name in `tree` sets, if that is what `call` calls, of its parameters what
    they are given there.
    """
    found = [function for function in functions_in(tree) if function.name == name_called(call)]
    if len(found) != 1:
        return
    handed = handed_to(call, found[0])
    for inner in setting_calls(found[0]):
        yield _Put(handed).visit(copy.deepcopy(inner.args[0]))


def handed_to(call: ast.Call, function: ast.AST) -> dict[str, ast.expr]:
    """By the names of its parameters what `call` hands to `function`."""
    parameters = getattr(function, "args", None)
    if not isinstance(parameters, ast.arguments):
        return {}
    names = [each.arg for each in parameters.args if each.arg not in _OF_ITSELF]
    by_name = {each.arg: each.value for each in call.keywords if each.arg is not None}
    return dict(zip(names, call.args, strict=False)) | by_name


class _Put(ast.NodeTransformer):
    """Puts what was handed in the place of parameters."""

    def __init__(self, handed: Mapping[str, ast.expr]) -> None:
        self._handed = handed

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._handed.get(node.id, node)
