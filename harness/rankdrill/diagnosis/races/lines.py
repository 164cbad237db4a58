"""Messages that are received from anybody by several lines of one block, each into a name of its own.

Who writes a line for each message, and a name, means one message by each; only tokens of one element may be whosever.
What is done with what was received would be seen in another order; of what nothing is done, the names have to speak.
And who keeps one under what another says means that both are of one sender.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Container, Sequence

from rankdrill.diagnosis.races.joined import parts_of
from rankdrill.diagnosis.races.places import is_about
from rankdrill.diagnosis.races.reception import Reception, receptions_in
from rankdrill.diagnosis.races.written import Written, name_called, names_in, plain_copy_of

__all__ = ["has_a_line_for_each", "is_put_together", "is_put_under_another_sender", "is_put_with_another"]

_ONE_WAY = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult)
_EITHER_WAY = frozenset(
    {"add", "add_", "allclose", "append", "bitwise_and", "bitwise_or", "cat", "cosine_similarity", "dist", "dot", "eq"}
    | {"equal", "hypot", "inner", "isclose", "l1_loss", "logaddexp", "logical_and", "logical_or", "max", "maximum"}
    | {"min", "minimum", "mse_loss", "mul", "mul_", "ne", "print", "stack", "sum", "vdot", "zip"}
)
"""Of what is called with two of them, what comes to the same the other way round, or only shows them."""
_SUMMED_UP = frozenset(
    {"amax", "amin", "aminmax", "max", "mean", "median", "min", "norm", "numel", "shape", "size", "sort", "std", "sum"}
)
_ADDS = frozenset({"add", "append", "copy_", "extend"})
_SHAPES = frozenset({"narrow", "reshape", "resize_", "split", "view"})
_SIZES = frozenset({"abs", "absolute", "dist", "mse_loss", "norm", "pow", "square"})


def has_a_line_for_each(reception: Reception, elements: int) -> bool:
    """Whether each receive of the function around takes from anybody, once a round, into a new name that nobody reads,
    or that is told apart from the others; or each into a place of one list, by its number.

    `elements` is how many the smallest message had. Who has another part may name its senders, in another branch.
    """
    written = reception.written
    receptions = receptions_in(written, lambda call: not written.is_in_another_branch(call, reception.call))
    blocks = {_block_of(written, each.call) for each in receptions}
    if elements > 1 and len(receptions) > 1 and len(blocks) == 1 and _are_numbered_places(written, receptions):
        return True
    names = {each.into.id for each in receptions if isinstance(each.into, ast.Name)}
    if len(receptions) < 2 or len(names) < len(receptions) or len(blocks) > 1:
        return False
    apart = {id(node) for pair in _told_apart(written, names) for node in ast.walk(pair)}
    if elements < 2 and not all(_is_told(written, each, apart) for each in names):
        return False
    return all(_is_unread(written, each, apart) for each in receptions)


def _is_told(written: Written, name: str, apart: Container[int]) -> bool:
    """Whether it is read where it is told `apart`: then it is more than a token."""
    return any(id(use) in apart for use in written.uses(name))


def _are_numbered_places(written: Written, receptions: Sequence[Reception]) -> bool:
    """Whether each is into another place of what is made here, and nobody reads any of them."""
    numbers, containers = set[object](), set[str]()
    for each in receptions:
        match each.into:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(number))) if each.waits:
                numbers.add(number)
                containers.add(name)
    if len(numbers) < len(receptions) or len(containers) != 1:
        return False
    (name,) = containers
    given = {id(each.into.value) for each in receptions if isinstance(each.into, ast.Subscript)}
    return written.is_made_here(name) and all(id(use) in given or is_about(written, use) for use in written.uses(name))


def _told_apart(written: Written, names: Collection[str]) -> list[ast.AST]:
    """Where one of the `names` is subtracted from another, or the like: the other way round it comes to something else.
    So it does where two are handed to one call, each for something else, or are joined with something between them, or
    are multiplied each by a number of its own.

    Not where only the size of that counts, or where it is kept and nobody knows what for.
    """
    return [
        node
        for node in ast.walk(written.function)
        if (_tells_apart(node, {*names}) and _is_given_as_it_is(written, node))
        or (_joins_around_another(node, {*names}) and not _is_summed_up(written, node))
    ]


def _tells_apart(node: ast.AST, names: set[str]) -> bool:
    return _is_one_way(node, names) or _hands_over(node, names) or _weighs_apart(node, names)


def _weighs_apart(node: ast.AST, names: set[str]) -> bool:
    """Whether it adds or lists two of them, of which each is multiplied by another number."""
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            pass
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = [left, right]
        case _:
            return False
    weights = [weight for part in parts if (weight := _weight_in(part, names)) is not None]
    return len(weights) == len(parts) > 1 and len({name for name, _ in weights}) == len({by for _, by in weights}) > 1


def _weight_in(part: ast.expr, names: set[str]) -> tuple[str, object] | None:
    match part:
        case (
            ast.BinOp(left=ast.Name(id=name), op=ast.Mult(), right=ast.Constant(value=weight))
            | ast.BinOp(left=ast.Constant(value=weight), op=ast.Mult(), right=ast.Name(id=name))
        ):
            return (name, weight) if name in names else None
    return None


def _is_one_way(node: ast.AST, names: set[str]) -> bool:
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, _ONE_WAY):
        return False
    left, right = names_in(node.left) & names, names_in(node.right) & names
    return len(left) == len(right) == 1 and left != right


def _hands_over(node: ast.AST, names: set[str]) -> bool:
    if not isinstance(node, ast.Call) or name_called(node) in _EITHER_WAY:
        return False
    given = [each.id for each in node.args if isinstance(each, ast.Name) and each.id in names]
    return len({*given}) == len(given) > 1


def _joins_around_another(node: ast.AST, names: set[str]) -> bool:
    parts = parts_of(node)
    at = [place for place, each in enumerate(parts) if isinstance(each, ast.Name) and each.id in names]
    return len(at) > 1 and at[-1] - at[0] >= len(at)


def _is_summed_up(written: Written, joined: ast.AST) -> bool:
    """Whether all that is asked of it is the same in whatever order it was joined."""
    match written.parent(joined):
        case ast.Attribute(attr=method):
            return method in _SUMMED_UP
        case ast.Assign(targets=[ast.Name(id=name)]) if uses := written.uses(name):
            return all(_is_summed_up(written, use) for use in uses)
    return False


def _is_given_as_it_is(written: Written, node: ast.AST) -> bool:
    """Whether its statement returns it, or hands it on, and takes no power or size of it before."""
    for around in written.around(node):
        if isinstance(around, ast.stmt):
            return isinstance(around, ast.Expr | ast.Return)
        method = around.attr if isinstance(around, ast.Attribute) else name_called(around)
        if method in _SIZES or isinstance(around, ast.BinOp):
            return False
    return False


def is_put_together(reception: Reception) -> bool:
    """Whether it and what another line of the block takes from anybody are one's, as they are used."""
    return is_put_with_another(reception) or is_put_under_another_sender(reception)


def is_put_with_another(reception: Reception) -> bool:
    """Whether it and what another line of the block takes from anybody are one's, as they are used: one is kept under
    the other, as a payload is under what its header says, or cut to that, or weighed by it. Or as they are called,
    where both come again and again and nothing at all is done with them: who receives two in each round means two of
    one sender.
    """
    written = reception.written
    block = _block_of(written, reception.call)
    those = [
        each
        for each in receptions_in(written, lambda call: _block_of(written, call) == block)
        if isinstance(each.into, ast.Name) and each.waits
    ]
    names = [each.into.id for each in those if isinstance(each.into, ast.Name)]
    if not isinstance(reception.into, ast.Name) or len(names) != 2 or len(set(names)) < 2:
        return False
    if written.loop_around(reception.call) is not None and all(_is_unread(written, each, ()) for each in those):
        return reception.into.id in names
    one, other = (_read_from(written, name, names) for name in names)
    kept = any(
        (one & names_in(index) and names[1] in names_in(value))
        or (other & names_in(index) and names[0] in names_in(value))
        for index, value in _kept_under(written)
    )
    return reception.into.id in names and (kept or _is_cut_to(written, *names) or _are_weighed(written, *names))


def _read_from(written: Written, name: str, received: Sequence[str]) -> set[str]:
    """It, and what is read out of it into names of their own: ``sender, rows = header.tolist()``."""
    read = {
        each.id
        for node in ast.walk(written.function)
        if isinstance(node, ast.Assign) and names_in(node.value) & {*received} == {name}
        for target in node.targets
        for each in ast.walk(target)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    return {name, *read - {*received}}


def _is_cut_to(written: Written, one: str, other: str) -> bool:
    """Whether one of two says which part of the other is meant, or of which shape that is."""
    for node in ast.walk(written.function):
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=said, ctx=ast.Load()):
                by = names_in(said)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method), args=given) if method in _SHAPES:
                by = {each for part in given for each in names_in(part)}
            case _:
                continue
        if (name == one and other in by) or (name == other and one in by):
            return True
    return False


def _are_weighed(written: Written, one: str, other: str) -> bool:
    """Whether one of two is divided by the other, or multiplied by it and used once more by itself: how many samples a
    mean was made of, say. A product alone is the same the other way round.
    """
    weighed: list[ast.BinOp] = []
    for node in ast.walk(written.function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
            operands = [names_in(side) & {one, other} for side in (node.left, node.right)]
            if operands in ([{one}, {other}], [{other}, {one}]):
                weighed.append(node)
    if any(isinstance(node.op, ast.Div) for node in weighed):
        return True
    within = {id(each) for node in weighed for each in ast.walk(node)}
    alone = [
        any(id(use) not in within and _is_read(written, use) for use in written.uses(name)) for name in (one, other)
    ]
    return bool(weighed) and alone[0] != alone[1]


def _is_read(written: Written, use: ast.Name) -> bool:
    """Whether it is not what a receive fills, nor only asked for its shape and the like."""
    into = any(isinstance(node, ast.Call) and name_called(node) in ("recv", "irecv") for node in written.around(use))
    return not into and not is_about(written, use)


def is_put_under_another_sender(reception: Reception) -> bool:
    """Whether it is kept under the rank that sent what was received from anybody just before, or made one thing with
    that rank, whoever has sent it.
    """
    written, into = reception.written, reception.into
    block = _block_of(written, reception.call)
    senders = {
        target.id
        for node in ast.walk(written.function)
        if isinstance(node, ast.Assign) and name_called(node.value) == "recv" and node.value is not reception.call
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Call) and _block_of(written, node.value) == block
    }
    if not senders or not isinstance(into, ast.Name) or not reception.waits:
        return False
    kept = [(index, value) for index, value in _kept_under(written) if into.id in names_in(value)]
    if kept:
        return all(names_in(index) & senders for index, _ in kept)
    return any(_is_one_thing_of(node, into.id, senders) for node in ast.walk(written.function))


def _is_one_thing_of(node: ast.AST, name: str, senders: Collection[str]) -> bool:
    """Whether it is made of what is in `name`, and of one of the `senders`: ``Message(sender, payload)``."""
    match node:
        case ast.Tuple(elts=parts, ctx=ast.Load()) | ast.List(elts=parts, ctx=ast.Load()):
            pass
        case ast.Call(args=args, keywords=keywords) if name_called(node) not in _EITHER_WAY:
            parts = [*args, *(keyword.value for keyword in keywords)]
        case ast.Dict(values=parts):
            pass
        case _:
            return False
    whole = {plain.id for part in parts if isinstance(plain := plain_copy_of(part), ast.Name)}
    return name in whole and any(sender in whole for sender in senders)


def _kept_under(written: Written) -> list[tuple[ast.AST, ast.AST]]:
    """What is assigned into a place, or added to what is kept there, each after what the place is told by."""
    found: list[tuple[ast.AST, ast.AST]] = []
    for node in ast.walk(written.function):
        match node:
            case ast.Assign(targets=[ast.Subscript(slice=index)], value=value):
                found.append((index, value))
            case ast.AugAssign(target=ast.Subscript(slice=index), value=value):
                found.append((index, value))
            case ast.Call(func=ast.Attribute(value=place, attr=method), args=[value]) if method in _ADDS:
                match place:
                    case ast.Subscript(slice=index) | ast.Call(func=ast.Attribute(attr="setdefault"), args=[index, _]):
                        found.append((index, value))
    return found


def _block_of(written: Written, call: ast.Call) -> tuple[int, str]:
    """The block of statements that `call` is in: of two in one block both have their turn."""
    inner: ast.AST = call
    for outer in written.around(call):
        if isinstance(inner, ast.stmt) and not isinstance(outer, ast.With | ast.AsyncWith):
            return id(outer), next(
                name for name, held in ast.iter_fields(outer) if isinstance(held, list) and inner in held
            )
        inner = outer
    return id(written.function), ""


def _is_unread(written: Written, reception: Reception, apart: Container[int]) -> bool:
    """Whether the name is bound by this function to something new, and only asked for its shape and the like, or read
    where it is told `apart` from the others.
    """
    assert isinstance(reception.into, ast.Name)
    name = reception.into.id
    if not reception.waits or name in written.parameters or not written.is_made_here(name):
        return False
    return all(
        use is reception.into
        or id(use) in apart
        or is_about(written, use)
        or written.is_in_another_branch(use, reception.call)
        for use in written.uses(name)
    )
