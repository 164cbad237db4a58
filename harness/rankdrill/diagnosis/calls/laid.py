"""Order in memory where it must fit by twos: between what is meant for a rank and that rank's output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from rankdrill.ledger import Post
from rankdrill.ledger.posts import IN_ORDER, NOTHING, laid_for, lie_alike
from rankdrill.step import STRIDES

__all__ = ["alone_in_order", "laid_apart"]


def laid_apart(posts: Sequence[Post], members: Sequence[int]) -> list[tuple[Post, Post]]:
    """The pairs of which one gives in another order what the other takes; only between tensors of one shape.

    A rank's tensors are all of one shape there.
    """
    if not any(post.laid[0] for post in posts):
        return []
    pairs = combinations(posts, 2)
    return [pair for pair in pairs if _shape(pair[0]) == _shape(pair[1]) and _apart(*pair, members)]


def alone_in_order(posts: Sequence[Post], pairs: Sequence[tuple[Post, Post]], members: Sequence[int]) -> list[int]:
    """Those whose part of a pair lies otherwise than all tensors of most ranks do, if that explains each of `pairs`."""
    orders = Counter(order for post in posts if (order := _one_order(post)) is not None)
    usual, count = orders.most_common(1)[0] if orders else (0, 0)
    if 2 * count <= len(members):
        return []
    place = {rank: at for at, rank in enumerate(members)}
    odd: set[int] = set()
    for pair in pairs:
        otherwise = {post.rank for post, other in (pair, pair[::-1]) if not _is_usual(post, other, usual, place)}
        if not otherwise:
            return []
        odd |= otherwise
    return sorted(odd)


def _one_order(post: Post) -> int | None:
    """That of all its tensors; None where they lie in several."""
    found = {order for row in post.laid for order in row} - {NOTHING} or {IN_ORDER}
    return found.pop() if len(found) == 1 else None


def _is_usual(post: Post, other: Post, usual: int, place: dict[int, int]) -> bool:
    mine = laid_for(post.laid, place[other.rank])
    theirs = laid_for(other.laid, place[post.rank])[::-1]
    return all(one == usual for one, two in zip(mine, theirs, strict=True) if one != two and NOTHING not in (one, two))


def _apart(one: Post, other: Post, members: Sequence[int]) -> bool:
    place = {rank: at for at, rank in enumerate(members)}
    return not lie_alike(laid_for(one.laid, place[other.rank]), laid_for(other.laid, place[one.rank]))


def _shape(post: Post) -> str:
    """``4,4``: that of the first of its tensors, in the brackets behind its type."""
    return post.shown.partition(STRIDES)[0].partition("[")[2].partition("]")[0]
