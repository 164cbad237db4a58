"""Messages that are kept each in a place of its own, by the order in which they come: the first in the first place.

That is wrong where the places mean something. They do where what lies in them is compared place by place; where one
tensor is made of all, one after the other, and returned, or read at one of its ends; where it is asked in which place
the best of all lies; where they are told by names, or the numbers of ranks, and shown or read by those; and where
places were made beforehand, one for each, and nothing at all is done with them that would not ask for their order: who
only adds them up, sorts them or hands them on may be right.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from rankdrill.diagnosis.races.answers import answered_as_counted
from rankdrill.diagnosis.races.compared import compared_in_order, compared_with_a_count
from rankdrill.diagnosis.races.joined import is_joined_in_order
from rankdrill.diagnosis.races.named import (
    asks_for_names,
    goes_by_names,
    is_named_later,
    rank_beside,
    stands_for_a_sender,
)
from rankdrill.diagnosis.races.ranked import is_asked_for_the_best_place
from rankdrill.diagnosis.races.reception import Reception
from rankdrill.diagnosis.races.written import LOOPS, Written, name_called, names_in, plain_copy_of

__all__ = ["answered_by_place", "is_about", "kept_in", "kept_in_order"]

_ABOUT = frozenset({"device", "dim", "dtype", "ndim", "numel", "shape", "size"})
_CLOCKS = frozenset({"elapsed_time", "monotonic", "perf_counter", "perf_counter_ns", "process_time", "time", "timeit"})
_OVERWRITE = frozenset({"copy_", "fill_", "zero_"})


@dataclass(frozen=True)
class _Place:
    """Messages are kept in `container`, which `named` stands for where that is done. `made`: one is there for each.

    `item` is what the place itself is called in `loop`, if it has a name. `read`: it is what came that is kept there.
    `under`: by a name, or the number of a rank, and not only by how many have come before.
    """

    container: str
    named: ast.Name
    made: bool
    item: str = ""
    loop: ast.AST | None = None
    read: bool = False
    under: bool = False


def kept_in_order(reception: Reception, elements: int) -> bool:
    """Whether it matters which message comes first, as far as the function around says.

    Of `elements` a message has at least so many: one alone only says that something is done, unless it is read.
    """
    written = reception.written
    if written.loop_around(reception.call) is None:
        return False
    place = _place_of(reception)
    if place is None or not (written.is_made_here(place.container) or _is_a_list(written, place)):
        return False
    told = [_told_by_item(reception, place)] if place.item else []
    told += [_told_by(written, use, place) for use in written.uses(place.container) if use is not place.named]
    if None in told:
        return False
    means_something = elements > 1 or place.read
    return True in told or (place.made and reception.waits and means_something and not _is_timed(written))


def kept_in(reception: Reception) -> str | None:
    """What keeps each message in a place that says how many came before it; None where nothing does."""
    place = _place_of(reception) if reception.written.loop_around(reception.call) is not None else None
    return place.container if place is not None and reception.written.is_made_here(place.container) else None


def answered_by_place(reception: Reception) -> int | None:
    """The line of the one send by which what is kept in a place is answered later, to the rank that the place counts.

    None where anything else is done with the places.
    """
    written = reception.written
    place = _place_of(reception) if written.loop_around(reception.call) is not None else None
    if place is None or not written.is_made_here(place.container) or _uses_of_item(reception, place):
        return None
    uses = [use for use in written.uses(place.container) if use is not place.named and not is_about(written, use)]
    loops = [next((loop for loop in written.around(use) if isinstance(loop, LOOPS)), None) for use in uses]
    if len(uses) != 1 or loops[0] is None:
        return None
    items = _items_in(written, loops[0], uses[0])
    return answered_as_counted(written, items) if items else None


# ------------------------------------------------------------------------------------------- where it is kept


def _place_of(reception: Reception) -> _Place | None:
    written = reception.written
    match reception.into:
        case ast.Name(id=name):
            over = written.runs_over(name, reception.call)
            if over is not None:
                return _Place(over[1].id, over[1], True, name, over[0])
            return _stored(reception, name)
        case ast.Subscript(value=ast.Name() as container, slice=index) if _counts(written, index):
            return _Place(container.id, container, True, under=stands_for_a_sender(written, index))
    return None


def _counts(written: Written, index: ast.AST) -> bool:
    """Whether it goes by a count, and by nothing else but what stays as it was bound: how many rows each has, say."""
    names = names_in(index)
    counted = names & written.counted
    return bool(counted) and all(_stays(written, name) for name in names - counted)


def _stays(written: Written, name: str) -> bool:
    """Whether it is bound once, and by no loop."""
    bindings = written.bindings(name)
    return len(bindings) == 1 and not any(isinstance(each, LOOPS) for each in written.around(bindings[0]))


def _stored(reception: Reception, name: str) -> _Place | None:
    """What is received is then copied somewhere in the same round, and nothing else is done with it."""
    written = reception.written
    uses = [each for each in written.uses(name) if each is not reception.into]
    uses = [each for each in uses if not written.means_another(each, reception.call)]
    uses = [each for each in uses if not written.is_in_another_branch(each, reception.call)]
    if len(uses) > 1:
        return _entered(written, uses)
    if len(uses) != 1 or written.loop_around(uses[0]) is not written.loop_around(reception.call):
        return None
    if uses[0].lineno <= reception.call.lineno:
        return None
    for node in written.around(uses[0]):
        match node:
            case ast.Assign(targets=[ast.Subscript(value=ast.Name() as container, slice=index)], value=value):
                under = stands_for_a_sender(written, index)
                plain = plain_copy_of(value) is uses[0] and (under or _counts(written, index))
                return _Place(container.id, container, True, read=True, under=under) if plain else None
            case ast.Call(func=ast.Attribute(value=ast.Name() as container, attr="append"), args=[value]):
                return _Place(container.id, container, False) if plain_copy_of(value) is uses[0] else None
            case ast.stmt():
                return None
    return None


def _entered(written: Written, uses: Sequence[ast.Name]) -> _Place | None:
    """Parts of what is received make one entry, under a name, together with the number of the rank that the loop has
    beside that name.
    """
    entries = {next(each for each in written.around(use) if isinstance(each, ast.stmt)) for use in uses}
    match entries.pop() if len(entries) == 1 else None:
        case ast.Assign(targets=[ast.Subscript(value=ast.Name() as container, slice=ast.Name() as index)], value=value):
            beside = rank_beside(written, index)
            under = beside in names_in(value) and stands_for_a_sender(written, index)
            return _Place(container.id, container, True, read=True, under=True) if under else None
    return None


def _is_a_list(written: Written, place: _Place) -> bool:
    """Whether messages are appended to a list that is written here, whatever it begins with."""
    return not place.made and written.is_bound_to(place.container, ast.List)


# ------------------------------------------------------------------------------------------- what is done with it


def _is_timed(written: Written) -> bool:
    """Whether the function looks at a clock: who only measures how long messages take never reads them."""
    return any(name_called(node) in _CLOCKS for node in ast.walk(written.function))


def _told_by_item(reception: Reception, place: _Place) -> bool | None:
    """Whether what lies in the place is compared with a count of places; None where something else is done with it."""
    return _all(reception.written, _uses_of_item(reception, place))


def _uses_of_item(reception: Reception, place: _Place) -> list[ast.Name]:
    """Where what lies in the place is used by its own name, while messages are received."""
    inside = {id(node) for node in ast.walk(place.loop)} if place.loop is not None else set()
    uses = reception.written.uses(place.item) if place.item else []
    return [each for each in uses if each is not reception.into and id(each) in inside]


def _all(written: Written, uses: list[ast.Name]) -> bool | None:
    compared = [each for each in uses if not is_about(written, each)]
    if not all(compared_with_a_count(written, each) for each in compared):
        return None
    return bool(compared)


def _told_by(written: Written, use: ast.Name, place: _Place) -> bool | None:
    """The same of one `use` of all places."""
    if is_about(written, use) or _is_written_to(written, use) or (place.under and asks_for_names(written, use)):
        return False
    if compared_in_order(written, use) or is_joined_in_order(written, use):
        return True
    if is_asked_for_the_best_place(written, use):
        return True
    if (place.under and goes_by_names(written, use)) or is_named_later(written, use):
        return True
    parent = written.parent(use)
    if isinstance(parent, ast.Subscript) and _counts(written, parent.slice):
        return True if compared_with_a_count(written, parent) else None
    for loop in written.around(use):
        if isinstance(loop, LOOPS):
            return _told_by_loop(written, loop, use)
        if isinstance(loop, ast.stmt):
            break
    return None


def _told_by_loop(written: Written, loop: ast.AST, use: ast.Name) -> bool | None:
    """The same of a loop that runs over all places."""
    items = _items_in(written, loop, use)
    return None if items is None else _all(written, items) or None


def _items_in(written: Written, loop: ast.AST, use: ast.Name) -> list[ast.Name] | None:
    """Where each place is read in a loop that runs over all of them, as `use` says; None where it does not."""
    inside = [each for each in ast.walk(loop) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
    names = {each.id for each in ast.walk(loop) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    for name in names:
        over = next((written.runs_over(name, each) for each in inside if each.id == name), None)
        if over is not None and over[1] is use:
            return [each for each in inside if each.id == name]
    return None


def is_about(written: Written, node: ast.AST) -> bool:
    """Whether it, or one of its parts, is asked for its length, shape or the like."""
    parent = written.parent(node)
    if isinstance(parent, ast.Subscript) and parent.value is node:
        return is_about(written, parent)
    if isinstance(parent, ast.Attribute):
        return parent.attr in _ABOUT
    return isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "len"


def _is_written_to(written: Written, node: ast.AST) -> bool:
    """Whether one of the places is overwritten by something of this rank's own."""
    place = written.parent(node)
    if not isinstance(place, ast.Subscript) or place.value is not node:
        return False
    method = written.parent(place)
    if isinstance(method, ast.Attribute):
        return method.attr in _OVERWRITE and isinstance(written.parent(written.parent(method)), ast.Expr)
    return isinstance(place.ctx, ast.Store) and isinstance(method, ast.Assign)
