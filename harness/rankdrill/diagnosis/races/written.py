"""A function's source as a tree that can be climbed: what stands around a node, and which names mean what."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from functools import cached_property

__all__ = ["LOOPS", "Written", "name_called", "names_in", "plain_copy_of"]

LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_HANDED_ON = frozenset({"enumerate", "list", "reversed", "tuple", "zip"})  # each gives what it is given, place by place
_UNPACKED = frozenset({"items", "unbind", "values"})  # methods that do so
_COPIES = frozenset({"clone", "copy", "cpu", "detach", "item", "numpy", "tolist"})
_CASTS = frozenset({"float", "int"})
_NEW = frozenset(
    {
        *("empty", "empty_like", "full", "full_like", "new_empty", "new_full", "new_ones", "new_zeros"),
        *("ones", "ones_like", "rand", "rand_like", "randn", "randn_like", "tensor", "zeros", "zeros_like"),
    }
)
_COUNT = "count"  # what enumerate gives first


class Written:
    """The source of `function`, or of a whole module."""

    def __init__(self, function: ast.AST) -> None:
        self.function = function

    @cached_property
    def _parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.function) for child in ast.iter_child_nodes(node)}

    def parent(self, node: ast.AST) -> ast.AST:
        """What `node` is written in; itself of the function."""
        return self._parents.get(node, node)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """What stands around `node`, from the inside out."""
        while node is not self.function:
            node = self.parent(node)
            yield node

    def loop_around(self, node: ast.AST) -> ast.AST | None:
        """The innermost loop, or comprehension, that makes `node` again and again."""
        inner = node
        for outer in self.around(node):
            if isinstance(outer, ast.While) or (isinstance(outer, ast.For) and inner is not outer.iter):
                return outer
            if isinstance(outer, _COMPREHENSIONS) and not isinstance(inner, ast.comprehension):
                return outer
            inner = outer
        return None

    def is_in_another_branch(self, node: ast.AST, other: ast.AST) -> bool:
        """Whether a run that comes to one of the two does not come to the other, in another round of a loop either:
        then the condition asks for the rank.
        """
        mine, theirs = {*self.around(node)}, {*self.around(other)}
        return any(
            (not mine.isdisjoint(each.body) and not theirs.isdisjoint(each.orelse))
            or (not mine.isdisjoint(each.orelse) and not theirs.isdisjoint(each.body))
            for each in mine & theirs
            if isinstance(each, ast.If) and (self.loop_around(each) is None or _is_of_the_rank(each.test))
        )

    def means_another(self, use: ast.Name, node: ast.AST) -> bool:
        """Whether a loop that `use` is in, and `node` is not, has bound its name to something else."""
        around = list(self.around(node))
        return any(
            isinstance(each, ast.Name) and each.id == use.id
            for loop in self.around(use)
            if isinstance(loop, ast.For) and loop not in around
            for each in ast.walk(loop.target)
        )

    def uses(self, name: str) -> list[ast.Name]:
        """Where `name` is read, or something is done to what it holds, in the order of the text."""
        found = [node for node in ast.walk(self.function) if isinstance(node, ast.Name) and node.id == name]
        read = [node for node in found if isinstance(node.ctx, ast.Load)]
        return sorted(read, key=lambda node: (node.lineno, node.col_offset))

    def bindings(self, name: str) -> list[ast.Name]:
        """Where `name` is bound by this function itself; nothing where another scope has a part in it."""
        found = [node for node in ast.walk(self.function) if isinstance(node, ast.Name) and node.id == name]
        if name in self._shared or any(self._in_another_scope(node) for node in found):
            return []
        return [node for node in found if isinstance(node.ctx, ast.Store)]

    def is_made_here(self, name: str) -> bool:
        """Whether `name` holds only what this function itself has made for it: then nobody knows it by another name."""
        bindings = self.bindings(name)
        return bool(bindings) and all(_is_new(self.value_of(node)) for node in bindings)

    def is_bound_to(self, name: str, kind: type[ast.AST]) -> bool:
        """Whether `name` is bound here, and to nothing but such."""
        bindings = self.bindings(name)
        return bool(bindings) and all(isinstance(self.value_of(node), kind) for node in bindings)

    def value_of(self, node: ast.Name) -> ast.AST | None:
        """What is assigned to the name `node`."""
        match self.parent(node):
            case ast.Assign(value=value, targets=targets) if node in targets:
                return value
            case ast.AnnAssign(value=value):
                return value
            case ast.Tuple(elts=names) as several:
                match self.parent(several):
                    case ast.Assign(value=ast.Tuple(elts=values)) if len(values) == len(names):
                        return values[names.index(node)]
        return None

    @cached_property
    def _shared(self) -> set[str]:
        declared = (node for node in ast.walk(self.function) if isinstance(node, ast.Global | ast.Nonlocal))
        return {name for node in declared for name in node.names}

    def _in_another_scope(self, node: ast.AST) -> bool:
        return any(isinstance(outer, _SCOPES) and outer is not self.function for outer in self.around(node))

    @property
    def parameters(self) -> list[str]:
        """By position."""
        arguments = getattr(self.function, "args", None)
        if not isinstance(arguments, ast.arguments):
            return []
        return [each.arg for each in (*arguments.posonlyargs, *arguments.args)]

    @cached_property
    def counted(self) -> frozenset[str]:
        """Names that count: each is bound by a loop over a range, or a constant sequence, or goes up by constants."""
        found = set()
        stored = [node for node in ast.walk(self.function) if isinstance(node, ast.Name)]
        for name in {node.id for node in stored if isinstance(node.ctx, ast.Store)}:
            bindings = [node for node in stored if node.id == name and isinstance(node.ctx, ast.Store)]
            if all(self._counts(node) for node in bindings) and any(not self._is_constant(node) for node in bindings):
                found.add(name)
        return frozenset(found)

    def _is_constant(self, node: ast.Name) -> bool:
        parent = self.parent(node)
        return isinstance(parent, ast.Assign) and isinstance(parent.value, ast.Constant)

    def _counts(self, node: ast.Name) -> bool:
        parent = self.parent(node)
        if self._is_constant(node):
            return True
        if isinstance(parent, ast.AugAssign):
            return isinstance(parent.value, ast.Constant)
        if isinstance(parent, ast.Tuple):
            loop = self.parent(parent)
            if not isinstance(loop, ast.For | ast.comprehension):
                return False
            at = parent.elts.index(node)
            given = _paired(loop.iter, at)
            return given == _COUNT or _is_range(given) or (at == 0 and self._is_keyed_by_counts(loop.iter))
        return isinstance(parent, ast.For | ast.comprehension) and _is_range(parent.iter)

    def _is_keyed_by_counts(self, items: ast.expr) -> bool:
        """Whether `items` are those of a dictionary of which each key was one of a range when it was set."""
        match items:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=container), attr="items"), args=[]):
                parents = [self.parent(use) for use in self.uses(container)]
                set_there = [each.slice for each in parents if isinstance(each, ast.Subscript) and _is_set(each)]
                return bool(set_there) and all(self._is_of_a_range(key) for key in set_there)
        return False

    def _is_of_a_range(self, key: ast.expr) -> bool:
        if not isinstance(key, ast.Name):
            return False
        return any(
            isinstance(target, ast.Name) and target.id == key.id and _is_range(iterated)
            for loop in self.around(key)
            for target, iterated in _targets(loop)
        )

    def runs_over(self, name: str, node: ast.AST) -> tuple[ast.AST, ast.Name] | None:
        """The loop around `node` that `name` is bound by, and the name of what it runs over, element by element."""
        for loop in self.around(node):
            for target, iterated in _targets(loop):
                if isinstance(target, ast.Name) and target.id == name:
                    over = _elements_of(iterated)
                elif isinstance(target, ast.Tuple):
                    names = [each.id if isinstance(each, ast.Name) else "" for each in target.elts]
                    given = _paired(iterated, names.index(name)) if name in names else None
                    over = _elements_of(given) if isinstance(given, ast.AST) else None
                else:
                    continue
                if over is not None:
                    return loop, over
        return None


def _is_of_the_rank(test: ast.expr) -> bool:
    """Whether all that it asks for is the rank, by that name: ``rank.index == 2``."""
    names = names_in(test)
    return bool(names) and all(name in ("rank", "me") or name.endswith("_rank") for name in names)


def _is_set(place: ast.Subscript) -> bool:
    return isinstance(place.ctx, ast.Store)


def _is_new(value: ast.AST | None) -> bool:
    """Whether it is a new tensor, or a new list or dictionary of such."""
    match value:
        case ast.List(elts=each) | ast.Dict(values=each):
            return all(map(_is_new, each))
        case ast.ListComp(elt=each) | ast.DictComp(value=each):
            return _is_new(each)
        case ast.Call(func=ast.Name(id=kind) | ast.Subscript(value=ast.Name(id=kind)), args=[], keywords=[]):
            return kind in ("list", "dict") or kind in _NEW
    return name_called(value) in _NEW


def _targets(loop: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(loop, ast.For):
        return [(loop.target, loop.iter)]
    return [(each.target, each.iter) for each in getattr(loop, "generators", [])]


def _is_range(node: ast.AST | str | None) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "range"
    return isinstance(node, ast.Tuple | ast.List) and all(isinstance(each, ast.Constant) for each in node.elts)


def _paired(iterated: ast.expr, at: int) -> ast.expr | str | None:
    """What the target's part number `at` comes from: an argument of zip or enumerate, or the count."""
    match iterated:
        case ast.Call(func=ast.Name(id="enumerate"), args=[given, *_]):
            return _COUNT if at == 0 else given
        case ast.Call(func=ast.Name(id="zip"), args=args) if at < len(args):
            return args[at]
        case ast.Call(func=ast.Attribute(attr="items")) if at == 1:
            return iterated
    return None


def _elements_of(iterated: ast.AST) -> ast.Name | None:
    """The name of what is run over."""
    match iterated:
        case ast.Name():
            return iterated
        case ast.Call(func=ast.Name(id=name), args=[given]) if name in _HANDED_ON:
            return _elements_of(given)
        case ast.Call(func=ast.Attribute(value=given, attr=name)) if name in _UNPACKED:
            return _elements_of(given)
        case ast.Subscript(value=given, slice=ast.Slice()):
            return _elements_of(given)
    return None


def name_called(call: ast.AST | None) -> str:
    """``recv`` of ``dist.recv(...)``; nothing of what is no call."""
    if not isinstance(call, ast.Call):
        return ""
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def names_in(node: ast.AST, but: Collection[str] = ()) -> set[str]:
    """The names that are read in it."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and each.id not in but}


def plain_copy_of(node: ast.AST) -> ast.AST:
    """What `node` is a copy of, or the whole content of in another form: of ``buffer.clone()`` the ``buffer``."""
    match node:
        case ast.Call(func=ast.Attribute(value=given, attr=name), args=[]) if name in _COPIES:
            return plain_copy_of(given)
        case ast.Call(func=ast.Name(id=name), args=[given]) if name in _CASTS:
            return plain_copy_of(given)
    return node
