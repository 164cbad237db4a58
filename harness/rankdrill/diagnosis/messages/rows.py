"""Ranks in rows, of which each exchanges with those beside it, and one that goes on past the end of its row.

What it does there its neighbours do as well, and whom it takes for one does nothing of the kind: had that left it out,
the row would be a ring, or rows of one length would only be parts of a longer one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rankdrill.diagnosis.messages.traffic import MessageEnd, Traffic

__all__ = ["past_its_row"]

SHORTEST = 3  # of fewer in a row, as many as there are may be chance
NEIGHBOURS = 2
Rows = Mapping[int, Collection[int]]
"""Whom each rank has exchanged something with."""


def past_its_row(ends: Collection[MessageEnd], traffic: Traffic) -> MessageEnd | None:
    """Of `ends`, which met nothing, the one that goes past the end of a row; None where all others are not in rows.

    The rank at the other end of the same row is taken for a neighbour only if both halves are for it: that one of many
    has left one half out is as likely.
    """
    for end in ends:
        left_over = [each for each in traffic.left_over() if each.stream.group == end.stream.group]
        if any((each.rank, each.peer) != (end.rank, end.peer) for each in left_over):
            continue
        rows = _rows(traffic)
        if rows is None or not _are_ends(end, rows):
            continue
        own, beside = _row_of(end.rank, rows), _row_of(end.peer, rows)
        both = {each.sends for each in left_over} == {True, False}
        in_one = own == beside == rows.keys() and both and not _goes_round(end, rows)
        apart = own != beside and all(len(_row_of(rank, rows)) == len(own) for rank in rows)
        if len(own) >= SHORTEST and (in_one or apart):
            return end
    return None


def _rows(traffic: Traffic) -> Rows | None:
    """None where somebody has more than two neighbours, or somebody none."""
    beside: dict[int, set[int]] = {rank: set() for rank, ends in traffic.ends.items() if ends}
    for rank, ends in traffic.ends.items():
        for each in ends:
            if traffic.other_end(each) is not None:
                beside[rank].add(each.peer)
    return beside if all(0 < len(peers) <= NEIGHBOURS for peers in beside.values()) else None


def _are_ends(end: MessageEnd, rows: Rows) -> bool:
    """Whether the two ranks of it are both at an end of a row."""
    return all(len(rows.get(rank, ())) == 1 for rank in (end.rank, end.peer))


def _goes_round(end: MessageEnd, rows: Rows) -> bool:
    """Whether ranks that follow each other are neighbours, but those of `end`; and so are the last and the first."""
    ranks = sorted(rows)
    ring = {frozenset(pair) for pair in zip(ranks, [*ranks[1:], ranks[0]], strict=True)}
    links = {frozenset((rank, peer)) for rank, peers in rows.items() for peer in peers}
    return ring - links == {frozenset((end.rank, end.peer))} != {frozenset((ranks[0], ranks[-1]))}


def _row_of(rank: int, rows: Rows) -> set[int]:
    found, new = {rank}, {rank}
    while new:
        new = {peer for each in new for peer in rows[each]} - found
        found |= new
    return found
