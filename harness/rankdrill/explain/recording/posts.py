"""What a record says of a call, as a rank would have posted it on the board of contracts, which real jobs lack.

The ledger holds a digest of all that must be equal, and a text that may be cut: the digest says whether two calls
agree, the text in what they do not.
"""

from __future__ import annotations

import re
import zlib

from rankdrill.ledger import Post, Record
from rankdrill.step import BY_TWOS, NEW_GROUP, NOBODY

__all__ = ["post_of"]

_TENSOR = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
_ROOT = re.compile(r"\broot=(\d+)")
_REDUCE = frozenset({"sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"})


def post_of(rank: int, record: Record) -> Post:
    """The post of what `rank` has recorded."""
    step = record.step
    text = step.fingerprint
    root = _ROOT.search(text)
    reduce_op = next((word for word in text.split() if word in _REDUCE), "")
    tensors = _TENSOR.findall(text)
    dtypes = tuple(dict.fromkeys(dtype for dtype, _ in tensors))
    sizes = () if step.op in BY_TWOS else tuple(_elements(shape) for _, shape in tensors)
    if step.op == NEW_GROUP:
        sizes = (_mark(text),)
    shown = text if step.op == NEW_GROUP else "+".join(f"{dtype}[{shape}]" for dtype, shape in tensors)
    # What the text was cut off before is in the digest still.
    rest = step.digest if not _told_whole(text) and step.op != NEW_GROUP else 0
    marks = (_mark(step.op), _mark(reduce_op), int(root[1]) if root else NOBODY, _mark(dtypes), _mark((sizes, rest)))
    return Post(rank, marks, None, (), (), step.op, reduce_op, "+".join(dtypes), shown, step.site)


def _told_whole(text: str) -> bool:
    return not text.endswith("…") and " more" not in text


def _elements(shape: str) -> int:
    count = 1
    for part in filter(None, shape.split(",")):
        count *= int(part)
    return count


def _mark(value: object) -> int:
    return zlib.crc32(repr(value).encode())
