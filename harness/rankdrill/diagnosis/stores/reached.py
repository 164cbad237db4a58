"""Which functions of the user's a program may come to, as far as the source says: those that it was seen in, and on."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from rankdrill.diagnosis.calls.tree import function_around, tree_of
from rankdrill.step import Site

__all__ = ["Code", "functions_from", "own_nodes", "speaks_of"]

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Place: TypeAlias = tuple[str, int]
MOST_FILES = 16  # whose source is looked into


@dataclass(frozen=True)
class Code:
    """A function, or what a file does by itself: then it has no `name`."""

    file: str
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Module

    @property
    def name(self) -> str:
        return "" if isinstance(self.node, ast.Module) else self.node.name

    @property
    def place(self) -> _Place:
        return self.file, 0 if isinstance(self.node, ast.Module) else self.node.lineno


def functions_from(sites: Iterable[Site]) -> list[Code]:
    """The functions around `sites`, those that these speak of, and so on, by name; and what their files do themselves.

    A name may be that of several functions, also of methods: then it is taken for each.
    """
    seen = list(sites)
    trees = {file: tree for file in sorted({site.file for site in seen})[:MOST_FILES] if (tree := tree_of(file))}
    named = _by_name(trees)
    left = [Code(file, tree) for file, tree in trees.items()]
    left += [Code(site.file, node) for site in seen if isinstance(node := function_around(site), _FUNCTIONS)]
    found: dict[_Place, Code] = {}
    while left:
        code = left.pop()
        if code.place not in found:
            found[code.place] = code
            left += [other for node in own_nodes(code.node) for other in named.get(_name(node), ())]
    return list(found.values())


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What lies in `node`, but not in functions in it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, _FUNCTIONS):
            yield from own_nodes(child)


def speaks_of(name: str, node: ast.AST) -> bool:
    """Whether `node` is that name, or an attribute's."""
    return _name(node) == name != ""


def _name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
            return name
        case _:
            return ""


def _by_name(trees: dict[str, ast.Module]) -> dict[str, list[Code]]:
    """All functions; those that Python calls itself by the name of their class."""
    named: dict[str, list[Code]] = {}
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, _FUNCTIONS):
                named.setdefault(node.name, []).append(Code(file, node))
            elif isinstance(node, ast.ClassDef):
                special = (each for each in node.body if isinstance(each, _FUNCTIONS) and each.name.startswith("__"))
                named.setdefault(node.name, []).extend(Code(file, each) for each in special)
    return named
