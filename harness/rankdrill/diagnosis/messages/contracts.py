"""The two halves of one message compared: what is sent, and what is expected."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from math import prod
from typing import TypeAlias

from rankdrill.diagnosis.calls.contracts import only_device_differs
from rankdrill.diagnosis.calls.tree import function_around, name_called
from rankdrill.diagnosis.finding import Finding, FindingKind, side_of
from rankdrill.diagnosis.messages import words
from rankdrill.ledger import Half, MessageCall, Post
from rankdrill.step import Site

__all__ = ["Posted", "break_in_message"]

Posted: TypeAlias = tuple[MessageCall, Half, Post]
Marks: TypeAlias = tuple[int, ...]
PATTERN = 2  # messages of others, of which one may have had that size by chance
_DTYPES = 3  # its place in `Post.marks`
_CUTTING = frozenset({"array_split", "chunk", "divmod", "narrow", "split", "tensor_split", "unbind"})
_SHAPE = re.compile(r"\[([\d,]*)\]")
_OF_RANKS = re.compile(r"rank|index|worker|peer|client|stage|dst|src", re.IGNORECASE)


def break_in_message(
    call: MessageCall, sent: Post, received: Post, seen: Iterable[Posted], group: str, header: Sequence[int] = ()
) -> Finding | None:
    """What is wrong between the two ends of `call`; None if nothing.

    `seen` is what there is of other messages of this group: it may tell who is the odd one. So may the `header`, the
    integers that went the same way right before.
    """
    if sent.marks == received.marks:
        return None
    by_dtype = sent.marks[_DTYPES] != received.marks[_DTYPES]
    kind, argument = (FindingKind.DATATYPE, "dtype") if by_dtype else (FindingKind.SIZE, "size")
    if by_dtype and only_device_differs(sent, received):
        kind, argument = FindingKind.DEVICE, "device"
    sending = words.sends(sent.shown, call.target, call.tag, group, sent.site)
    expecting = words.expects(received.shown, call.source, call.tag, group, received.site)
    sides = {
        Half.SEND: side_of([call.source], sending, [sent.site]),
        Half.RECV: side_of([call.target], expecting, [received.site]),
    }
    of_group = list(seen)
    ends = {Half.SEND: sent, Half.RECV: received}
    odd = _unlike_the_header(ends, header) if not by_dtype else None
    odd = odd or _odd_one(call, ends, [each for each in of_group if each[0].tag == call.tag], by_dtype=by_dtype)
    odd = odd or _unlike_under_other_tags(call, ends, of_group)
    first = odd or Half.SEND
    told = words.message(call.source, call.target, call.tag, call.number, group)
    culprits = (call.of(odd),) if odd is not None else ()
    return Finding(kind, told, argument, (sides[first], sides[first.other]), culprits)


def _unlike_the_header(ends: dict[Half, Post], header: Sequence[int]) -> Half | None:
    """The end whose size a header does not have, as a count of elements or as a shape, where it has the other's."""
    shapes = {half: _shape(post) for half, post in ends.items()}
    odd = [half for half, shape in shapes.items() if shape is not None and not _is_said(shape, header)]
    return odd[0] if header and None not in shapes.values() and len(odd) == 1 else None


def _shape(post: Post) -> list[int] | None:
    """That of its one tensor."""
    shapes = _SHAPE.findall(post.shown)
    return [int(size) for size in shapes[0].split(",") if size] if len(shapes) == 1 else None


def _is_said(shape: Sequence[int], header: Sequence[int]) -> bool:
    return prod(shape) in header or (len(shape) > 1 and _ends_with(header, shape))


def _ends_with(header: Sequence[int], shape: Sequence[int]) -> bool:
    return list(header[-len(shape) :]) == list(shape)


def _odd_one(call: MessageCall, ends: dict[Half, Post], seen: list[Posted], *, by_dtype: bool) -> Half | None:
    """The end that other ranks' messages speak against, or failing these its own past; None where nothing tells.

    Failing that too, the one whose rank does not fit another one either.
    """
    places = {_place(post) for post in ends.values()}
    by_line = {posted[0] for posted in seen if _place(posted[2]) in places} if by_dtype else set()
    there = [
        posted for posted in seen if _place(posted[2]) in places or posted[0] in by_line or _goes_along(posted[0], call)
    ]
    others = _others(call, there, call.number)
    # Each pair may have a size of its own: others tell what it should be only if it was theirs the time before.
    if not by_dtype and not _did_as(_others(call, there, call.number - 1), _before(call, seen)):
        others = set()
    agreeing = {half for half, post in ends.items() if post.marks in others}
    if not agreeing and {post.rank for _, _, post in there} - {call.source, call.target}:  # else it is one against one
        agreeing = _unchanged(call, ends, seen)
    if len(agreeing) == 1:
        return next(iter(agreeing)).other
    if (odd := _turned_round(call, ends, seen) or _unlike_what_came(call, ends, seen)) is not None:
        return odd
    if not by_dtype and (odd := _unlike_the_next(call, ends, seen)) is not None:
        return odd
    if not by_dtype and not call.number and (odd := _unlike_all_there(call, ends, seen)) is not None:
        return odd
    if not by_dtype and not agreeing and (odd := _alone_at_the_lines(call, ends, seen)) is not None:
        return odd
    unfit = {half for half in ends if _unfit_elsewhere(call.of(half), call, seen)}
    return unfit.pop() if not agreeing and len(unfit) == 1 else None


def _turned_round(call: MessageCall, ends: dict[Half, Post], seen: list[Posted]) -> Half | None:
    """The end that has two messages in another order than a third rank, which exchanged both with the other end."""
    for half, post in ends.items():
        theirs = ends[half.other]
        whole = _whole_of(half.other, call, seen)
        for third in {each.of(half) for each in whole}:
            marks = {each.number: found for each, found in whole.items() if each.of(half) == third}
            later = [found for number, found in marks.items() if number != call.number]
            if marks.get(call.number) == theirs.marks and post.marks in later:
                return half
    return None


def _unlike_what_came(call: MessageCall, ends: dict[Half, Post], seen: list[Posted]) -> Half | None:
    """The end that is not as what the sender has received in that round, where the two were alike in all rounds
    before: a stage that hands on as much as came.
    """
    came: dict[int, set[Marks]] = {}
    past: dict[int, set[Marks]] = {}
    for other, _, post in seen:
        if other.target == call.source and other.source != call.target:
            came.setdefault(other.number, set()).add(post.marks)
        elif (other.source, other.target) == (call.source, call.target) and other.number < call.number:
            past.setdefault(other.number, set()).add(post.marks)
    now = came.get(call.number, set())
    if len(now) != 1 or not past or any(len(marks) != 1 or marks != came.get(number) for number, marks in past.items()):
        return None
    odd = [half for half, post in ends.items() if post.marks not in now]
    return odd[0] if len(odd) == 1 else None


def _unlike_under_other_tags(call: MessageCall, ends: dict[Half, Post], seen: list[Posted]) -> Half | None:
    """The end that is not as all that these two have exchanged from their lines to theirs under other tags, which may
    count the rounds, nor as anything that third ranks have at these lines now.
    """
    places = {half: _place(post) for half, post in ends.items()}
    there = [(other, post) for other, half, post in seen if _place(post) == places[half] is not None]
    two = {call.source, call.target}
    past = {post.marks for other, post in there if other.tag != call.tag and {other.source, other.target} == two}
    beside = {post.marks for other, post in there if other.tag == call.tag and post.rank not in two}
    odd = [half for half, post in ends.items() if post.marks not in past]
    return odd[0] if len(past) == len(odd) == 1 and beside == past else None


def _whole_of(half: Half, call: MessageCall, seen: list[Posted]) -> dict[MessageCall, Marks]:
    """What the rank of that end of `call` has exchanged with others, the same way, and fitted."""
    found: dict[MessageCall, list[Marks]] = {}
    for other, _, post in seen:
        if other.of(half) == call.of(half) and other.of(half.other) != call.of(half.other):
            found.setdefault(other, []).append(post.marks)
    return {other: marks[0] for other, marks in found.items() if len(marks) == len(Half) and len(set(marks)) == 1}


def _unlike_the_next(call: MessageCall, ends: dict[Half, Post], seen: list[Posted]) -> Half | None:
    """The end that brings another size than what went between the same lines in that round, and fitted: two ranks of
    three have it so. Only of what one rank exchanges with several, and no source cuts to measure: from stage to stage
    sizes may change, and from one shard to the next.
    """
    if any(post.site is None or _cuts_to_measure(post.site) for post in ends.values()):
        return None
    places = {half: _place(post) for half, post in ends.items()}
    there: dict[MessageCall, dict[Half, Post]] = {}
    for other, half, post in seen:
        beside = (other.source == call.source) is not (other.target == call.target)
        if beside and other.number == call.number and _place(post) == places[half] is not None:
            there.setdefault(other, {})[half] = post
    whole = [posts for posts in there.values() if len(posts) == len(Half)]
    marks = {post.marks for posts in whole for post in posts.values()}
    odd = [half for half, post in ends.items() if post.marks not in marks]
    return odd[0] if len(marks) == len(odd) == 1 else None


def _cuts_to_measure(site: Site, *, edges: bool = True) -> bool:
    """Whether something in its function may be of another size for each rank: shards, say; also if nobody can say."""
    function = function_around(site)
    return function is None or any(_cuts(node, edges) for node in ast.walk(function))


def _cuts(node: ast.AST, edges: bool) -> bool:
    match node:
        case ast.Call():
            return name_called(node) in _CUTTING
        case ast.BinOp(op=ast.FloorDiv()):
            return True
        case ast.Slice(lower=lower, upper=upper):
            bounds = [each for each in (lower, upper) if each is not None and not isinstance(each, ast.Constant)]
            return edges or len(bounds) > 1 or any(_OF_RANKS.search(ast.unparse(each)) for each in bounds)
        case ast.Subscript(value=ast.Name(), slice=index):
            return bool(_OF_RANKS.search(ast.unparse(index)))
    return False


def _unlike_all_there(call: MessageCall, ends: dict[Half, Post], seen: list[Posted]) -> Half | None:
    """The end that brings another size than all that others sent and received at the lines of both, and that fitted:
    two messages did, or one and what there is of another, to which its own rank has not come yet.
    """
    places = {_place(post) for post in ends.values()}
    there: dict[MessageCall, list[Post]] = {}
    for other, _, post in seen:
        if other != call and _place(post) in places:
            there.setdefault(other, []).append(post)
    whole = [posts for posts in there.values() if len(posts) == len(Half)]
    marks = {post.marks for posts in there.values() for post in posts}
    odd = [half for half, post in ends.items() if post.marks not in marks]
    enough = bool(whole) and len(there) >= PATTERN
    return odd[0] if enough and len(marks) == 1 and len(odd) == 1 else None


def _alone_at_the_lines(call: MessageCall, ends: dict[Half, Post], seen: list[Posted]) -> Half | None:
    """The end that brings another size than all that third ranks have posted at the lines of both in that round, more
    than once: these may wait for their own still. Not where the source cuts to measure, unless it cuts edges.
    """
    if any(post.site is None or _cuts_to_measure(post.site, edges=False) for post in ends.values()):
        return None
    places = {_place(post) for post in ends.values()}
    there = [
        post.marks
        for other, _, post in seen
        if post.rank not in (call.source, call.target) and other.number == call.number and _place(post) in places
    ]
    odd = [half for half, post in ends.items() if post.marks not in there]
    return odd[0] if len(there) >= PATTERN and len(set(there)) == len(odd) == 1 else None


def _goes_along(other: MessageCall, call: MessageCall) -> bool:
    """Whether it comes from the same rank, or goes to the same: what a master takes, all its workers send."""
    return other.source == call.source or other.target == call.target


def _place(post: Post) -> tuple[str, int] | None:
    return post.site.place if post.site is not None else None


def _unfit_elsewhere(rank: int, call: MessageCall, seen: list[Posted]) -> bool:
    """Whether a message that `rank` exchanges with a third one does not fit either."""
    apart: dict[MessageCall, set[Marks]] = {}
    for other, _, post in seen:
        ends = {other.source, other.target}
        if rank in ends and ends != {call.source, call.target}:
            apart.setdefault(other, set()).add(post.marks)
    return any(len(marks) > 1 for marks in apart.values())


def _others(call: MessageCall, seen: list[Posted], number: int) -> set[Marks]:
    """What other ranks do in the round `number`: in a ring, say, all send the same."""
    involved = {call.source, call.target}
    return {post.marks for other, _, post in seen if other.number == number and post.rank not in involved}


def _before(call: MessageCall, seen: list[Posted]) -> dict[Half, Post]:
    """The ends of the message before."""
    before = MessageCall(call.group, call.source, call.target, call.tag, call.number - 1)
    return {half: post for other, half, post in seen if other == before}


def _did_as(others: set[Marks], past: dict[Half, Post]) -> bool:
    return bool(past) and others == {post.marks for post in past.values()}


def _unchanged(call: MessageCall, ends: dict[Half, Post], seen: list[Posted]) -> set[Half]:
    """The ends that did the same on the same line in the message before: in a loop, the other one has changed."""
    past = _before(call, seen)
    return {
        half
        for half, post in ends.items()
        if half in past and (past[half].marks, past[half].site) == (post.marks, post.site)
    }
