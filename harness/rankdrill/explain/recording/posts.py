"""What a record says of a call, as a rank would have posted it on the board of contracts, which real jobs lack.

The ledger holds a digest of all that must be equal, and a text that may be cut: the digest says whether two calls
agree, the text in what they do not.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankdrill.ledger import Post, Record
from rankdrill.step import BY_TWOS, NEW_GROUP, NOBODY, STRIDES

__all__ = ["post_of", "posts_of"]

_DEVICE = re.compile(r"[a-z]+:")
_TENSOR = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
_ROOT = re.compile(r"\broot=(\d+)")
_STRIDES = re.compile(re.escape(STRIDES) + r"(\([\d,]*\)(?:\+\([\d,]*\))*)(?: |$)")
_SPLITS = re.compile(r"sent as (\d[\d,]*) received as (\d[\d,]*)(?: |$)")
_REDUCE = frozenset({"sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"})


def posts_of(records: Mapping[int, Record]) -> list[Post]:
    """The posts of what ranks have recorded of one call, in their order.

    Those of one digest agree, whatever their texts show: of a scatter only the root's tells its tensors.
    """
    posts = {rank: post_of(rank, record) for rank, record in sorted(records.items())}
    by_digest: dict[int, list[Post]] = {}
    for rank, post in posts.items():
        by_digest.setdefault(records[rank].step.digest, []).append(post)
    found: list[Post] = []
    known: set[tuple[int, ...]] = set()
    for digest, alike in by_digest.items():
        marks = max(alike, key=lambda post: len(post.shown)).marks
        if marks in known and alike[0].op != NEW_GROUP:
            marks = (*marks[:-1], digest & 0xFFFFFFFF)
        known.add(marks)
        found += [replace(post, marks=marks) for post in alike]
    return sorted(found, key=lambda post: post.rank)


def post_of(rank: int, record: Record, *, sized: bool = False) -> Post:
    """The post of what `rank` has recorded; `sized` if ranks are to bring the same to whatever call it is."""
    step = record.step
    text = step.fingerprint
    root = _ROOT.search(text)
    reduce_op = next((word for word in text.split() if word in _REDUCE), "")
    tensors = _TENSOR.findall(text)
    device = _DEVICE.match(text)
    on = device[0] if device and tensors else ""
    dtypes = tuple(dict.fromkeys(f"{on if not at else ''}{dtype}" for at, (dtype, _) in enumerate(tensors)))
    by_twos = step.op in BY_TWOS
    sizes = () if by_twos and not sized else tuple(_elements(shape) for _, shape in tensors)
    if step.op == NEW_GROUP:
        sizes = (_mark(text),)
    shown = text if step.op == NEW_GROUP else on + "+".join(f"{dtype}[{shape}]" for dtype, shape in tensors)
    root_mark = int(root[1]) if root else NOBODY
    strides = _STRIDES.search(text)
    if strides is not None and step.op != NEW_GROUP:
        shown += f"{STRIDES}{strides[1]}"
    # Of another order in memory a record has only the strides; of tensors in order, and by twos, nothing.
    in_memory = _mark(strides[1]) if strides is not None else 0
    marks = _mark(step.op), _mark(reduce_op), root_mark, _mark(dtypes), _mark(sizes), in_memory
    sends, receives = _splits(text, tensors) if step.op == "all_to_all_single" else ((), ())
    return Post(rank, marks, None, sends, receives, step.op, reduce_op, "+".join(dtypes), shown, step.site)


def _splits(text: str, tensors: Sequence[tuple[str, str]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many elements are sent to each member, and expected from each, where both are told and nothing is cut off."""
    found = _SPLITS.search(text)
    if found is None or len(tensors) != 1 or text.endswith("…"):
        return (), ()
    row = _elements(tensors[0][1].partition(",")[2])
    sent, received = (tuple(int(rows) * row for rows in part.split(",")) for part in found.groups())
    return (sent, received) if len(sent) == len(received) else ((), ())


def _elements(shape: str) -> int:
    count = 1
    for part in filter(None, shape.split(",")):
        count *= int(part)
    return count


def _mark(value: object) -> int:
    return zlib.crc32(repr(value).encode())
