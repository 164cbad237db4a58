"""Numbers of collectives that ranks do not share, mended where that can be.

Older torch counts a batch of messages as a collective of its group, on the ranks that take part in it; so ranks
come to different numbers for one call, and each misses some. Where all that a group's members did was recorded, their
collectives are counted anew; where rings have wrapped, nobody knows which call of one rank is which of another's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["counted_anew"]

_Array = npt.NDArray[Any]


def counted_anew(rows: Mapping[str, _Array], groups: int, whole: _Array) -> tuple[_Array, frozenset[int]]:
    """The numbers of all rows, and the groups whose calls have none that say anything.

    `rows` has columns ``rank``, ``group``, ``seq``, ``record`` and ``p2p``; `whole` says of each row whether its rank's
    ring still holds all that it did.
    """
    seq = rows["seq"].copy()
    collective = np.flatnonzero(~rows["p2p"])
    if not len(collective):
        return seq, frozenset()
    pair = rows["rank"][collective].astype(np.int64) * max(1, groups) + rows["group"][collective]
    order = np.argsort(pair, kind="stable")
    at, pairs = collective[order], pair[order]
    first = np.ones(len(at), np.bool_)
    first[1:] = np.diff(pairs) != 0
    step = np.ones(len(at), np.int64)
    step[1:] = np.diff(rows["seq"][at])
    step[first] = 1
    skips = np.unique(rows["group"][at[(step < 0) | (step > 1)]])
    # A dump of active calls alone has gaps of another kind: what is not there has ended.
    skips = np.setdiff1d(skips, rows["group"][at[_leaves_out(rows)[at]]])
    skips = np.array([group for group in skips.tolist() if _differ(rows, at[rows["group"][at] == group])], np.int64)
    if not len(skips):
        return seq, frozenset()
    counts = np.cumsum(first | (step != 0))
    starts = np.flatnonzero(first)
    counts -= np.repeat(counts[starts] - 1, np.diff(np.append(starts, len(at))))
    drifting = np.isin(rows["group"][at], skips)
    torn = np.unique(rows["group"][at[drifting & ~whole[at]]])
    seq[at[drifting]] = counts[drifting]
    return seq, frozenset(torn.tolist())


def _differ(rows: Mapping[str, _Array], of_group: _Array) -> bool:
    """Whether a rank has no call of a number that another has, between its own first and last; or counts backwards."""
    there = np.unique(rows["seq"][of_group])
    _, starts = np.unique(rows["rank"][of_group], return_index=True)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(of_group)], strict=True):
        own = rows["seq"][of_group[start:end]]
        expected = np.searchsorted(there, own.max(), "right") - np.searchsorted(there, own.min(), "left")
        if len(np.unique(own)) != expected or (np.diff(own) < 0).any():
            return True
    return False


def _leaves_out(rows: Mapping[str, _Array]) -> _Array:
    """Of each row, whether its rank's dump leaves entries out."""
    rank, record = rows["rank"], rows["record"]
    gap = np.zeros(len(rank), np.bool_)
    gap[1:] = (np.diff(rank) == 0) & (np.diff(record) != 1)
    return np.isin(rank, np.unique(rank[gap]))
