"""What names are bound to in a file, and whether that is the same on all ranks."""

from __future__ import annotations

import ast

__all__ = ["bound_to", "is_same_on_all"]

_SIZE = "world_size"
MOST_STEPS = 4  # from a name to what it was assigned, and on


def is_same_on_all(given: ast.expr, *scopes: ast.AST, steps: int = MOST_STEPS) -> bool:
    """Whether it is a constant, the size of the world, or made of these, as far as `scopes` say: a function, its file;
    names mean what they do in the first that binds them.
    """
    match given:
        case ast.Constant():
            return True
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name == f"get_{_SIZE}"
        case ast.Attribute(attr=name):
            return name == _SIZE
        case ast.UnaryOp(operand=inner):
            return is_same_on_all(inner, *scopes, steps=steps)
        case ast.BinOp(left=left, right=right):
            return all(is_same_on_all(each, *scopes, steps=steps) for each in (left, right))
        case ast.Name(id=name) if steps:
            bound = (bound_to(name, scope) for scope in scopes)
            values, stored, argument = next((found for found in bound if found[1] or found[2]), ([], 0, False))
            known = 0 < len(values) == stored and not argument
            return known and all(is_same_on_all(value, *scopes, steps=steps - 1) for value in values)
    return False


def bound_to(name: str, tree: ast.AST) -> tuple[list[ast.expr], int, bool]:
    """What the name is assigned all over `tree`, how often it is bound there in any way, and whether a function is
    given something by that name.
    """
    values: list[ast.expr] = []
    stored, argument = 0, False
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=found) | ast.Attribute(attr=found)], value=value) if found == name:
                values.append(value)
            case ast.Assign(targets=[ast.Tuple(elts=several)], value=ast.Tuple(elts=given)):
                pairs = zip(several, given, strict=False)
                values += [value for each, value in pairs if isinstance(each, ast.Name) and each.id == name]
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                values.append(value)
            case ast.Name(id=found, ctx=ast.Store()) | ast.Attribute(attr=found, ctx=ast.Store()) if found == name:
                stored += 1
            case ast.arg(arg=found) if found == name:
                argument = True
    return values, stored, argument
