"""Who receives what: the shapes that gathers return, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

__all__ = ["GIVES", "NEAR", "NOT_LOOKED_AT", "REDUCED", "Gives"]

Gives = Callable[[int, Sequence[Any]], Any]
"""``gives(rank, payloads)``: what `rank` is to receive. Raises `TypeError` or `ValueError` where nothing is right."""


class _NotLookedAt:
    def __repr__(self) -> str:
        return "<not looked at>"

    def __reduce__(self) -> str:
        return "NOT_LOOKED_AT"  # there is one of it, also on ranks that are sent it


NOT_LOOKED_AT = _NotLookedAt()
"""What is expected on a rank of which nothing is: whatever it returns is right."""


def _list(rank: int, payloads: Sequence[Any]) -> Any:
    return list(payloads)


def _dict(rank: int, payloads: Sequence[Any]) -> Any:
    return dict(enumerate(payloads))


def _concatenated(rank: int, payloads: Sequence[Any]) -> Any:
    import torch

    if all(isinstance(payload, Mapping) for payload in payloads):
        return _by_key(payloads, lambda values: _concatenated(rank, values))
    if any(isinstance(payload, torch.Tensor) for payload in payloads):
        return torch.cat([_with_rows(payload) for payload in payloads])
    if not all(isinstance(payload, list | tuple) for payload in payloads):
        raise TypeError(f"{_names(payloads)} has no items that others could be put behind")
    return [item for payload in payloads for item in payload]


def _with_rows(payload: Any) -> Any:
    """`payload`, if rows of others can be put behind its own."""
    import torch

    if not isinstance(payload, torch.Tensor) or not payload.dim():
        raise TypeError(f"{_names([payload])} without dimensions has no rows that others could be put behind")
    return payload


def _stacked(rank: int, payloads: Sequence[Any]) -> Any:
    import torch

    if all(isinstance(payload, Mapping) for payload in payloads):
        return _by_key(payloads, lambda values: _stacked(rank, values))
    return torch.stack(list(payloads))


def _by_key(payloads: Sequence[Mapping[Any, Any]], made: Callable[[Sequence[Any]], Any]) -> dict[Any, Any]:
    """What is `made` of all ranks' values under each key."""
    if len({frozenset(payload) for payload in payloads}) > 1:
        raise ValueError("ranks have other keys, and what is right under one that a rank has not is open")
    return {key: made([payload[key] for payload in payloads]) for key in payloads[0]}


def _sum(rank: int, payloads: Sequence[Any]) -> Any:
    return reduce(_added, payloads)


def _mean(rank: int, payloads: Sequence[Any]) -> Any:
    if all(isinstance(payload, Mapping) for payload in payloads):
        return _by_key(payloads, lambda values: _mean(rank, values))
    return _sum(rank, payloads) / len(payloads)


def _added(left: Any, right: Any) -> Any:
    """The sum of two numbers, arrays or tensors alike, or of what two dicts of such have under each key; what only one
    of them has is as it is."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        both = {key: _added(left[key], right[key]) for key in left if key in right}
        return {**left, **right, **both}
    if isinstance(left, int | float | complex) and isinstance(right, int | float | complex):
        return left + right
    shapes = getattr(left, "shape", None), getattr(right, "shape", None)
    if shapes[0] is None or shapes[1] is None:
        raise TypeError(f"{_names([left, right])} cannot be added up")
    if shapes[0] != shapes[1] or left.dtype != right.dtype:
        raise ValueError(f"tensors of other shapes or dtypes cannot be added up: {left.shape} and {right.shape}")
    return left + right


def _names(payloads: Sequence[Any]) -> str:
    return " and ".join(dict.fromkeys(type(payload).__name__ for payload in payloads))


def _at_dst(gives: Gives) -> Gives:
    def at_dst(rank: int, payloads: Sequence[Any]) -> Any:
        return gives(rank, payloads) if rank == 0 else NOT_LOOKED_AT

    return at_dst


_ON_ALL: dict[str, Gives] = {
    "list": _list,
    "dict": _dict,
    "concatenated": _concatenated,
    "stacked": _stacked,
    "sum": _sum,
    "mean": _mean,
}
GIVES: dict[str, Gives] = {
    **_ON_ALL,
    "dst": _at_dst(_list),
    **{f"{name} at dst": _at_dst(gives) for name, gives in _ON_ALL.items() if name != "list"},
}
"""A list of all payloads; a dict by rank; all ranks' items in one list, or in one tensor; all in one tensor with a
dimension more; their sum or mean, of dicts by key. On all ranks, or on rank 0 alone (``"dst"``, ``"sum at dst"``)."""

REDUCED = frozenset(name for name in GIVES if name.startswith(("sum", "mean")))
"""Those that are of another value than what any rank has sent."""

NEAR: dict[str, float] = {name: 1e-5 for name in GIVES if name.startswith("mean")}
"""How far numbers may be off, as a share of what is right, where one may well compute them in another order."""
