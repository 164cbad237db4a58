"""What the ranks of one call must agree on, as far as a dump tells: the op, and sizes and types where they must fit.

Dumps have neither roots nor reduce operators. Sizes are counts of elements, since that is all that backends look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from zlib import crc32

from rankdrill.explain.flight.columns import Call
from rankdrill.ledger import Post
from rankdrill.step import Site

__all__ = ["family", "marks_of", "meets_all", "post_of", "shown"]

# Names that mean one call: torch has renamed some, and what they are made of is the same.
_FAMILIES = {
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
    "_allgather_base": "all_gather",
    "_all_gather_base": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_v": "all_gather",
    "allgather": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_v": "reduce_scatter",
    "gather_single": "gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "allreduce": "all_reduce",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "all_to_all_v_single": "all_to_all",
    "all_reduce_barrier": "barrier",
}
_MOST_SHOWN = 4  # tensors
_EVERYWHERE = frozenset({"all_reduce", "broadcast", "reduce", "allreduce_coalesced"})
_SENDS_ALIKE = frozenset({"all_gather", "gather"})
_TAKES_ALIKE = frozenset({"reduce_scatter", "scatter"})
_ONE_SIDED = frozenset({"broadcast", "reduce", "gather", "scatter"})  # a rank may be done before others have come


def family(call: Call) -> str:
    """The op, by one name for all spellings of it."""
    return _FAMILIES.get(call.op, call.op)


def meets_all(call: Call) -> bool:
    """Whether nobody is done with it before all members have come."""
    return call.source < 0 and family(call) not in _ONE_SIDED


def marks_of(call: Call) -> tuple[str, str, tuple[int, ...]]:
    """What all ranks must agree on: op, data types, and sizes; nothing, where ranks may differ."""
    op = family(call)
    if op in _EVERYWHERE or op in _SENDS_ALIKE:
        if op == "all_gather" and _uneven(call.outputs):
            return op, call.input_dtypes, ()
        return op, call.input_dtypes, _elements(call.inputs)
    if op in _TAKES_ALIKE:
        if op == "reduce_scatter" and _uneven(call.inputs):
            return op, call.output_dtypes, ()
        return op, call.output_dtypes, _elements(call.outputs)
    return op, "", ()


def _uneven(tensors: Sequence[Sequence[int]]) -> bool:
    """Whether it is a list of tensors, one for each rank, which need not be alike."""
    return len(set(map(tuple, tensors))) > 1


def _elements(tensors: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(prod, tensors))


def post_of(rank: int, call: Call, site: Site | None) -> Post:
    """The call as ranks post it on the board, for `break_in` to compare."""
    op, dtypes, sizes = marks_of(call)
    marks = (_mark(op), 0, 0, _mark(dtypes), _mark(repr(sizes)), 0)
    return Post(rank, marks, None, (), (), op, "", _dtypes(dtypes), shown(call), site)


def shown(call: Call) -> str:
    """``Float[4, 2]``: its tensors, as messages show them."""
    use_outputs = family(call) in _TAKES_ALIKE or not call.inputs
    tensors, dtypes = (call.outputs, call.output_dtypes) if use_outputs else (call.inputs, call.input_dtypes)
    names = dtypes.split(",") if dtypes else []
    told = [f"{name}[{', '.join(map(str, sizes))}]" for name, sizes in zip(names, tensors, strict=False)]
    return "+".join(told[:_MOST_SHOWN]) + (f"+… {len(told) - _MOST_SHOWN} more" if len(told) > _MOST_SHOWN else "")


def _mark(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"))


def _dtypes(told: str) -> str:
    return "+".join(dict.fromkeys(told.split(",")))
