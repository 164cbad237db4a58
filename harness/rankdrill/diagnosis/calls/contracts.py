"""Contracts compared: what the ranks of one call posted, who differs from most, and in what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from rankdrill.diagnosis.calls.laid import alone_in_order, laid_apart
from rankdrill.diagnosis.calls.made_for import made_for
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.ledger import Post, members_of
from rankdrill.ledger.posts import elements
from rankdrill.step import ANNOUNCED, NEW_GROUP, NOBODY, STRIDES

__all__ = ["MEMBERS", "break_in", "may_change", "only_device_differs"]

MEMBERS = "members"
"""What differs where ranks make different groups."""
_DIVIDING = frozenset({"new_subgroups", "new_subgroups_by_enumeration"})
SPLIT = "split"
"""What does not fit where ranks need only fit by twos."""
_OF_ONE = frozenset({"gather", "scatter"})
# In the order of `Post.marks`: what is wrong first explains the rest.
_ARGUMENTS = (
    (FindingKind.CALL_ORDERING, "op"),
    (FindingKind.OPERATOR, "reduce op"),
    (FindingKind.ROOT, "root"),
    (FindingKind.DATATYPE, "dtype"),
    (FindingKind.SIZE, "size"),
    (FindingKind.LAYOUT, "strides"),
)
_ORDERS = len(_ARGUMENTS) - 1  # the place of the last
_BESIDE_THE_CALL = frozenset({FindingKind.OPERATOR, FindingKind.DATATYPE, FindingKind.SIZE})


def break_in(posts: Sequence[Post], members: Sequence[int], group: str, number: int) -> Finding | None:
    """What is wrong among the `posts` for call `number` of a group with the global ranks `members`; None if nothing.

    `group` is its name. Who has not posted has no say, but counts: a majority is one of all members.
    """
    alike: dict[tuple[int, ...], list[Post]] = {}
    for post in posts:
        alike.setdefault(post.marks[:_ORDERS], []).append(post)
    call = f"#{number} on {group!r}"
    if len(alike) > 1:
        sides = list(alike.values())
        if not _each_makes_its_own(posts):
            found = _of_sides(sides, members, call)
        elif _mixed_up(posts):
            found = _of_their_own(sides, members, call)
        else:
            return None
    elif conflicts := _conflicts(posts, members):
        sides = _by_function(posts)
        found = _of_sides(sides, members, call) if len(sides) > 1 else _of_pairs(posts, conflicts, members, call)
    elif odd := _unlike_themselves(posts, members):
        found = _of_themselves(odd, members, call)
    elif sides := _ordered_apart(posts):
        found = _of_sides(sides, members, call)
    elif pairs := laid_apart(posts, members):
        found = _laid_by_twos(posts, pairs, members, call)
    else:
        return None
    return replace(found, group=group, number=number)


def _ordered_apart(posts: Sequence[Post]) -> list[list[Post]]:
    """Those that bring tensors of one shape in different orders in memory, by order; nothing if none do.

    Of other shapes, though they have as many elements, nobody can say which order fits.
    """
    by_shape: dict[str, dict[int, list[Post]]] = {}
    for post in posts:
        by_shape.setdefault(_shapes(post), {}).setdefault(post.marks[_ORDERS], []).append(post)
    return next((list(by_order.values()) for by_order in by_shape.values() if len(by_order) > 1), [])


def _shapes(post: Post) -> str:
    return post.shown.partition(STRIDES)[0]


def _laid_by_twos(
    posts: Sequence[Post], pairs: Sequence[tuple[Post, Post]], members: Sequence[int], call: str
) -> Finding:
    """What one gives lies in another order than what the other takes it into: who is alone in that is the culprit."""
    by_rank = {post.rank: post for pair in pairs for post in pair}
    odd = alone_in_order(posts, pairs, members)
    rest = [post for rank, post in sorted(by_rank.items()) if rank not in odd]
    alike: dict[str, list[Post]] = {}
    for post in (*(by_rank[rank] for rank in odd), *rest):
        alike.setdefault(f"{post.rank in odd} {post.shown} {post.site}", []).append(post)
    told = tuple(_side(side, "strides", call, members) for side in alike.values())
    return Finding(FindingKind.LAYOUT, f"{posts[0].op} {call}", "strides", told, tuple(odd))


def _each_makes_its_own(posts: Sequence[Post]) -> bool:
    """Whether every rank makes a group whose members, those that are here, make the same one.

    Torch allows no such thing, and does it: `new_subgroups` of a group that is not the same on all ranks. Elsewhere a
    rank has to be in what it makes: who makes a group of others goes by a list that all are to have.
    """
    if any(post.op != NEW_GROUP for post in posts):
        return False
    made = _made(posts)
    divided = all(post.site is not None and post.site.via in _DIVIDING for post in posts)
    return all(
        ranks is not None and (divided or rank in ranks) and all(made.get(other, ranks) == ranks for other in ranks)
        for rank, ranks in made.items()
    )


def _mixed_up(posts: Sequence[Post]) -> bool:
    """Whether several of the groups have members that look for each other.

    Torch numbers groups as each rank makes them, and members meet in the store under that number, by their rank in the
    group: those of two groups with one number meet each other, as it happens. Alone in a group nobody is looked for.
    """
    return len({ranks for rank, ranks in _made(posts).items() if ranks and rank in ranks and len(ranks) > 1}) > 1


def _made(posts: Sequence[Post]) -> dict[int, tuple[int, ...] | None]:
    return {post.rank: members_of(post.shown) for post in posts}


def may_change(finding: Finding) -> bool:
    """Whether those who have not posted yet may change who is at fault."""
    return not finding.culprits or finding.argument == SPLIT


def _of_sides(sides: list[list[Post]], members: Sequence[int], call: str) -> Finding:
    *others, most = sorted(sides, key=lambda side: (len(side), -side[0].rank))
    # Each side is told what sets it apart from most; what is wrong first is told first.
    others.sort(key=lambda side: (_apart(side[0], most[0]), side[0].rank))
    kind, argument = _difference(others[0][0], most[0])
    told = [_side(side, _difference(side[0], most[0])[1], call, members) for side in others]
    majority = 2 * len(most) > len(members)
    culprits = tuple(sorted(post.rank for side in others for post in side)) if majority else ()
    step = f"{most[0].op} {call}"
    both = (*told, _side(most, argument, call, members))
    return Finding(kind, step, argument, both if majority else _by_rank(both), culprits)


def _of_their_own(sides: Sequence[list[Post]], members: Sequence[int], call: str) -> Finding:
    """Nobody is at fault more than the others: all have left out the groups that they are not in."""
    told = _by_rank([_side(side, MEMBERS, call, members) for side in sides])
    return Finding(FindingKind.GROUP, f"{NEW_GROUP} {call}", MEMBERS, told)


def _difference(one: Post, other: Post) -> tuple[FindingKind, str]:
    """What the first difference is called, and what of the call it is in."""
    apart = _apart(one, other)
    kind, argument = _ARGUMENTS[apart] if apart < len(_ARGUMENTS) else (FindingKind.SIZE, SPLIT)
    if kind in _BESIDE_THE_CALL and made_for(one) != made_for(other):
        return FindingKind.CALL_ORDERING, "op"  # what the user called is not the same, though it is made of the same
    if kind is FindingKind.DATATYPE and only_device_differs(one, other):
        return FindingKind.DEVICE, "device"
    if kind is FindingKind.DATATYPE and one.dtypes == other.dtypes and one.shown != other.shown:
        return FindingKind.SIZE, "size"  # of one dtype, but not as many tensors
    return (FindingKind.GROUP, MEMBERS) if kind is FindingKind.SIZE and one.op == NEW_GROUP else (kind, argument)


def only_device_differs(one: Post, other: Post) -> bool:
    """Whether two that differ in their dtypes have the same ones on another device: ``cuda:float32`` is of one."""
    on, off = (post.dtypes.rpartition(":") for post in (one, other))
    return on[2] == off[2] and on[0] != off[0]


def _by_function(posts: Sequence[Post]) -> list[list[Post]]:
    """Those of each collective of Python objects, those that each of torch's own users made, and those of none."""
    found: dict[str, list[Post]] = {}
    for post in posts:
        found.setdefault(made_for(post), []).append(post)
    return list(found.values())


def _apart(one: Post, other: Post) -> int:
    """The first of the arguments that differ; one past the last where none does."""
    marks = enumerate(zip(one.marks, other.marks, strict=True))
    return next((place for place, (mine, theirs) in marks if mine != theirs), len(_ARGUMENTS))


def _by_rank(sides: Sequence[Side]) -> tuple[Side, ...]:
    return tuple(sorted(sides, key=lambda side: side.ranks))


def _side(posts: Sequence[Post], argument: str, call: str, members: Sequence[int]) -> Side:
    verb = "enters" if len(posts) == 1 else "enter"
    did = f"{verb} {_name(posts[0])} {call}{_value(posts[0], argument, members)}"
    return side_of([post.rank for post in posts], did, [post.site for post in posts])


def _name(post: Post) -> str:
    """``all_gather``, and whose it is where the user called something else: ``all_gather_object's all_gather``."""
    via = post.site.via if post.site is not None else ""
    return f"{via}'s {post.op}" if via and via != post.op else post.op


def _value(post: Post, argument: str, members: Sequence[int]) -> str:
    match argument:
        case "op":
            return ""
        case "reduce op":
            return f" with reduce op {post.reduce_op or '(none)'}"
        case "root":
            root = post.marks[2]
            return f" with root {members[root] if NOBODY < root < len(members) else root}"
        case "device":
            return f" with {post.dtypes}{'' if ':' in post.dtypes else ' in main memory'}"
        case "dtype":
            return f" with {post.dtypes or 'no tensor'}"
        case "strides":
            return f" with {post.shown}{'' if STRIDES in post.shown else ', contiguous'}"
        case _:
            return f" with {post.shown or 'no tensor'}"


# ---------------------------------------------------------------------------------------------------- by twos


def _conflicts(posts: Sequence[Post], members: Sequence[int]) -> list[tuple[Post, Post]]:
    """The pairs of which one sends the other what that one does not expect."""
    place = {rank: at for at, rank in enumerate(members)}
    if len({post.each for post in posts}) == 1 and posts[0].each is not None:
        return []
    return [(one, other) for one, other in combinations(posts, 2) if not _fit(one, other, place)]


def _unlike_themselves(posts: Sequence[Post], members: Sequence[int]) -> list[Post]:
    """Those that do not expect from themselves what they send there."""
    place = {rank: at for at, rank in enumerate(members)}
    return [post for post in posts if not _fit(post, post, place)]


def _of_themselves(odd: Sequence[Post], members: Sequence[int], call: str) -> Finding:
    """Each of these is wrong by itself, whatever the others bring."""
    place = {rank: at for at, rank in enumerate(members)}
    sides = []
    for post in odd:
        sent, expected = elements(post.each, post.sends, post.receives, place[post.rank]) or (0, 0)
        shown = _value(post, "size", members)
        did = f"enters {_name(post)} {call}{shown}: of {sent} elements for itself it expects {expected}"
        sides.append(side_of([post.rank], did, [post.site]))
    culprits = tuple(sorted(post.rank for post in odd))
    return Finding(FindingKind.SIZE, f"{odd[0].op} {call}", SPLIT, tuple(sides), culprits)


def _fit(one: Post, other: Post, place: Mapping[int, int]) -> bool:
    mine = elements(one.each, one.sends, one.receives, place[other.rank])
    theirs = elements(other.each, other.sends, other.receives, place[one.rank])
    return mine is None or theirs is None or mine == theirs[::-1]


def _of_pairs(posts: Sequence[Post], pairs: list[tuple[Post, Post]], members: Sequence[int], call: str) -> Finding:
    involved = {post.rank: post for pair in pairs for post in pair}
    culprits = _culprits(posts, pairs, members)
    step = f"{posts[0].op} {call}"
    if not culprits:
        told = [_side([post], "size", call, members) for _, post in sorted(involved.items())]
        return Finding(FindingKind.SIZE, step, SPLIT, tuple(told))
    by_rank = {post.rank: post for post in posts}
    place = {rank: at for at, rank in enumerate(members)}
    sides = [_side([by_rank[rank]], "size", call, members) for rank in culprits]
    met = next(pair for pair in pairs if {post.rank for post in pair} & set(culprits))
    odd, other = met if met[0].rank in culprits else met[::-1]
    did = _what_does_not_fit(odd, other, place)
    rest = [post for post in posts if post.rank not in culprits]
    others = side_of([other.rank], did, [other.site])
    if len(rest) > 1:
        same = [post for post in rest if post.shown == other.shown]
        verb = "enters" if len(same) == 1 else "enter"
        text = f"{verb} {_name(other)} {call}{_value(other, 'size', members)} ({others.did} on rank {other.rank})"
        others = side_of([post.rank for post in same], text, [post.site for post in same])
    return Finding(FindingKind.SIZE, step, SPLIT, (*sides, others), tuple(culprits))


def _what_does_not_fit(odd: Post, other: Post, place: Mapping[int, int]) -> str:
    mine = elements(odd.each, odd.sends, odd.receives, place[other.rank])
    theirs = elements(other.each, other.sends, other.receives, place[odd.rank])
    assert mine is not None
    assert theirs is not None
    if mine[0] != theirs[1]:
        return f"expects {theirs[1]} elements from rank {odd.rank}, which sends {mine[0]}"
    return f"sends {theirs[0]} elements to rank {odd.rank}, which expects {mine[1]}"


def _culprits(posts: Sequence[Post], pairs: list[tuple[Post, Post]], members: Sequence[int]) -> list[int]:
    """Who is in every pair that does not fit, or else brings another size than most do; nobody, if neither tells.

    Before that who brings something else than had been announced, if that explains all pairs.
    """
    unlike = {post.rank for pair in pairs for post in pair if ANNOUNCED in post.shown}
    if unlike and all(len(unlike & {post.rank for post in pair}) == 1 for pair in pairs):
        return sorted(unlike)
    common = set.intersection(*({post.rank for post in pair} for pair in pairs))
    if len(common) == 1:
        return sorted(common)
    if common and (odd := _at_odds_with_itself(common, posts, members) or _uneven(common, posts, members)):
        return odd
    if common and (odd := _fits_nobody(common, posts, members) or _unlike_all_else(common, posts, members)):
        return odd
    if common and (odd := _expects_what_it_sends(common, posts, members)):
        return odd
    if (
        common and posts[0].op not in _OF_ONE
    ):  # each pair has a size of its own: what others exchange says nothing of it
        return []
    sizes: dict[str, list[int]] = {}
    for post in posts:
        sizes.setdefault(post.shown, []).append(post.rank)
    most = max(sizes.values(), key=len)
    odd_ones = {post.rank for pair in pairs for post in pair} - set(most)
    explained = all({post.rank for post in pair} & odd_ones for pair in pairs)
    return sorted(odd_ones) if 2 * len(most) > len(members) and odd_ones and explained else []


def _at_odds_with_itself(pair: Collection[int], posts: Sequence[Post], members: Sequence[int]) -> list[int]:
    """The one of two that does not expect from itself what it sends there; one against one is for others to judge."""
    if len(members) == len(pair):
        return []
    place = {rank: at for at, rank in enumerate(members)}
    odd = [post.rank for post in posts if post.rank in pair and not _fit(post, post, place)]
    return odd if len(odd) == 1 else []


def _uneven(pair: Collection[int], posts: Sequence[Post], members: Sequence[int]) -> list[int]:
    """The root, if it deals with one of the others otherwise than with the rest, and that one with it as the rest do;
    or that one, if it is the other way round.
    """
    if posts[0].op not in _OF_ONE:
        return []
    by_rank = {post.rank: post for post in posts}
    root = members[posts[0].marks[2]]
    rest = [rank for rank in by_rank if rank not in (*pair, root)]
    if root not in pair or not rest:
        return []
    place = {rank: at for at, rank in enumerate(members)}
    (one,) = set(pair) - {root}
    by_root = [_with(by_rank[root], rank, place) for rank in (*rest, one)]
    by_others = [_with(by_rank[rank], root, place) for rank in (*rest, one)]
    alike = [len(set(each[:-1])) == 1 and each[-1] == each[0] for each in (by_root, by_others)]
    return {(False, True): [root], (True, False): [one]}.get((alike[0], alike[1]), [])


def _with(post: Post, other: int, place: Mapping[int, int]) -> tuple[int, int] | None:
    return elements(post.each, post.sends, post.receives, place[other])


def _fits_nobody(pair: Collection[int], posts: Sequence[Post], members: Sequence[int]) -> list[int]:
    """The one of two that do not fit whom nobody fits, where most of all fit the other: as a root fits all but one."""
    place = {rank: at for at, rank in enumerate(members)}
    fitting = {
        post.rank: [other.rank for other in posts if other.rank not in pair and _exchange(post, other, place)]
        for post in posts
        if post.rank in pair
    }
    odd = [rank for rank in pair if not fitting[rank]]
    most = max(len(those) for those in fitting.values()) + 1  # with the one that they fit
    return odd if len(odd) == 1 and 2 * most > len(members) else []


def _unlike_all_else(pair: Collection[int], posts: Sequence[Post], members: Sequence[int]) -> list[int]:
    """The one of two that do not fit by whom the other's number is another than all else that is exchanged."""
    if len(members) == len(pair):
        return []
    (one, other) = (post for post in posts if post.rank in pair)
    place = {rank: at for at, rank in enumerate(members)}
    mine = elements(one.each, one.sends, one.receives, place[other.rank])
    theirs = elements(other.each, other.sends, other.receives, place[one.rank])
    if mine is None or theirs is None:
        return []
    told = Counter(number for post in posts if post.each is None for number in (*post.sends, *post.receives))
    told += Counter(post.each for post in posts if post.each is not None)
    ways = [(numbers[0], numbers[1]) for numbers in zip(mine, theirs[::-1], strict=True) if numbers[0] != numbers[1]]
    told -= Counter(number for way in ways for number in way)
    odd = {
        one.rank if sent not in told else other.rank for sent, expected in ways if (sent in told) != (expected in told)
    }
    return sorted(odd) if len(told) == 1 and len(odd) == 1 and len(ways) == 1 else []


def _expects_what_it_sends(pair: Collection[int], posts: Sequence[Post], members: Sequence[int]) -> list[int]:
    """The one rank of all that expects from each just what it sends it, and not as much from all, if it is one of two
    that do not fit.
    """
    same = [post for post in posts if post.each is None and tuple(post.sends) == tuple(post.receives)]
    all_came = len(posts) == len(members) > len(pair)  # where they exchange the same both ways, all others do so
    odd = [post.rank for post in same if len(set(post.sends)) > 1]
    return odd if all_came and len(same) == 1 and set(odd) < set(pair) else []


def _exchange(one: Post, other: Post, place: Mapping[int, int]) -> bool:
    """Whether the two exchange something, and agree on it."""
    mine = elements(one.each, one.sends, one.receives, place[other.rank])
    return mine is not None and any(mine) and _fit(one, other, place)
