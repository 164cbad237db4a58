"""Types that gloo does not carry, played as others of their size."""

from __future__ import annotations

from dataclasses import replace

from rankdrill.replay.score import Part, Score, Tensor

__all__ = ["for_gloo"]

_INSTEAD = {  # torch 2.13's gloo; those of one size are apart, so that a mismatch of two stays one
    "int16": "float16",
    "uint16": "bfloat16",
    "uint32": "int32",
    "uint64": "int64",
    "float8_e4m3fn": "uint8",
    "float8_e4m3fnuz": "uint8",
    "float8_e5m2": "int8",
    "float8_e5m2fnuz": "int8",
    "float8_e8m0fnu": "bool",
}


def for_gloo(score: Score) -> Score:
    """`score` with types that gloo carries, which says so."""
    lacking = sorted(
        {each.dtype for part in score.parts for call in part.calls for each in call.tensors} & _INSTEAD.keys()
    )
    if not lacking:
        return score
    told = tuple(f"gloo does not carry {dtype}: {_INSTEAD[dtype]} is played for it" for dtype in lacking)
    return replace(score, parts=tuple(map(_part, score.parts)), assumed=(*score.assumed, *told))


def _part(part: Part) -> Part:
    calls = (replace(call, tensors=tuple(map(_tensor, call.tensors))) for call in part.calls)
    return replace(part, calls=tuple(calls))


def _tensor(tensor: Tensor) -> Tensor:
    return Tensor(_INSTEAD.get(tensor.dtype, tensor.dtype), tensor.shape)
