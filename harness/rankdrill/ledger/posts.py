"""What one rank posts of a call on the board, as bytes and read again."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rankdrill.ledger.whole_names import whole_name
from rankdrill.ledger.whole_paths import whole_path
from rankdrill.step import HANDED_OVER, Contract, Site

__all__ = [
    "IN_ORDER",
    "MARKS",
    "MOST_LAID",
    "MOST_TOLD",
    "NOTHING",
    "ROW",
    "Marks",
    "Post",
    "Told",
    "elements",
    "laid_for",
    "laid_of",
    "lie_alike",
    "marks_of",
    "read_post",
]

MOST_KNOWN = 1024  # texts remembered: loops post the same again and again
# digest; op, reduce op, root, dtypes, sizes, orders; each or -1; bytes of text; members in rows; the same of laid ones
MARKS = struct.Struct("<QIIiIIIqHHH")
ROW = struct.Struct("<I")  # elements sent to, then received from, each member
# Bytes at most: op, reduce op, dtypes, shown; file, function, via, line of the call site; its callers.
_FIELDS = (40, 24, 48, 112, 112, 48, 40, 8, 336)
_FILE = 4  # which of them is cut in front
_SEPARATOR = b"\x1f"
_BETWEEN = "\x1e"  # what is told of callers
_MOST = 0xFFFFFFFF
Marks: TypeAlias = tuple[int, int, int, int, int, int]
MOST_TOLD = MARKS.size + sum(_FIELDS) + len(_FIELDS)  # bytes, and `ROW` twice for each member
IN_ORDER, NOTHING = 0, 1  # marks of what lies in the order of its indices, and of what is not there
MOST_LAID = 64  # members of a group in which the order in memory of what each gives and takes is told: `ROW` twice


@dataclass(frozen=True, slots=True)
class Post:
    """What one rank has posted for a call.

    `marks` stand for what must be equal, in this order: op, reduce op, root, dtypes, sizes, orders in memory. The texts
    may be cut, the marks never are. `each`, `sends` and `receives` are those of the contract, counted modulo 2³²;
    `laid` has a mark for each order.
    """

    rank: int
    marks: Marks
    each: int | None
    sends: tuple[int, ...]
    receives: tuple[int, ...]
    op: str
    reduce_op: str
    dtypes: str
    shown: str
    site: Site | None
    laid: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


class Told:
    """Contracts and call sites as bytes, each put into them once."""

    def __init__(self) -> None:
        # By identity: the objects are interned, and these entries keep them from being made anew elsewhere.
        self._known: dict[tuple[int, int], tuple[bytes, int, Contract, Site | None]] = {}
        self._contracts: dict[int, tuple[_Half, Contract]] = {}  # few, of calls from many lines

    def of(self, contract: Contract, site: Site | None) -> tuple[bytes, int]:
        """What is posted of a call, always the same object, and its checksum."""
        key = id(contract), id(site)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            told = _write(self._half_of(contract), site)
            known = self._known[key] = told, zlib.crc32(told), contract, site
        return known[0], known[1]

    def _half_of(self, contract: Contract) -> _Half:
        known = self._contracts.get(id(contract))
        if known is None:
            if len(self._contracts) >= MOST_KNOWN:
                self._contracts.clear()
            known = self._contracts[id(contract)] = _Half(contract), contract
        return known[0]


class _Half:
    """What is posted of a contract, from whatever line."""

    def __init__(self, contract: Contract) -> None:
        laid = laid_of(contract)
        dtypes = "+".join(dict.fromkeys(contract.dtypes))
        self.text = _joined((contract.op, contract.reduce_op, dtypes, contract.shown), _FIELDS)
        self.marks = contract.digest, *marks_of(contract), _each(contract)
        self.members = len(contract.sends), len(laid[0])
        self.rows = b"".join(
            ROW.pack(count & _MOST) for count in (*contract.sends, *contract.receives, *laid[0], *laid[1])
        )


def marks_of(contract: Contract) -> Marks:
    """As `Post.marks` has them."""
    return (
        _mark(contract.op),
        _mark(contract.reduce_op),
        contract.root,
        _mark(contract.dtypes),
        _mark(contract.sizes),
        _mark(contract.orders),
    )


def elements(each: int | None, sends: Sequence[int], receives: Sequence[int], member: int) -> tuple[int, int] | None:
    """How many elements are sent to and received from `member` of the group, modulo 2³²; None where nobody says."""
    if each is not None:
        return each & _MOST, each & _MOST
    return (sends[member] & _MOST, receives[member] & _MOST) if member < len(sends) else None


def laid_of(contract: Contract) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The marks of `Contract.laid`, nothing of large groups."""
    if not contract.laid or len(contract.laid[0]) > MOST_LAID:
        return (), ()
    given, taken = (tuple(map(_order_mark, row)) for row in contract.laid)
    return given, taken


def laid_for(laid: Sequence[Sequence[int]], member: int) -> tuple[int, int]:
    """The marks of how that lies which is given to `member` of the group, and taken from it."""
    given, taken = (row[member] if member < len(row) else IN_ORDER for row in laid)
    return given, taken


def lie_alike(mine: tuple[int, int], theirs: tuple[int, int]) -> bool:
    """Whether one gives what the other takes in the same order, both ways."""
    return all(one == two or NOTHING in (one, two) for one, two in zip(mine, theirs[::-1], strict=True))


def _order_mark(order: tuple[int, ...] | None) -> int:
    if order is None:
        return NOTHING
    return max(_mark(order), NOTHING + 1) if order else IN_ORDER


def _each(contract: Contract) -> int:
    return -1 if contract.each is None else contract.each & _MOST


def _mark(value: object) -> int:
    return zlib.crc32(repr(value).encode())


def _write(half: _Half, site: Site | None) -> bytes:
    at = site or Site("", 0, "")
    callers = _callers(at, _FIELDS[-1])
    where = _cut(at.file, _FIELDS[_FILE], tail=True)
    rest = _joined((at.function, at.via, str(at.line), callers), _FIELDS[_FILE + 1 :])
    text = _SEPARATOR.join((half.text, where, rest))
    return MARKS.pack(*half.marks, len(text), *half.members) + half.rows + text


def _joined(texts: Sequence[str], rooms: Sequence[int]) -> bytes:
    return _SEPARATOR.join(_cut(text, room, tail=False) for text, room in zip(texts, rooms, strict=False))


def _cut(text: str, room: int, *, tail: bool) -> bytes:
    raw = text.encode("utf-8", "backslashreplace").replace(_SEPARATOR, b"?")
    if len(raw) <= room:
        return raw
    return "…".encode() + raw[3 - room :] if tail else raw[: room - 3] + "…".encode()


def read_post(rank: int, raw: bytes) -> Post:
    _, op, reduced, root, dtypes, sizes, orders, each, length, members, in_laid = MARKS.unpack_from(raw)
    end = MARKS.size + 2 * ROW.size * (members + in_laid)
    rows = tuple(count for (count,) in ROW.iter_unpack(raw[MARKS.size : end]))
    laid = rows[2 * members :]
    fields = raw[end:][:length].decode("utf-8", "replace").split(_SEPARATOR.decode())
    op_name, reduce_op, dtypes_text, shown, file, function, via, line, callers = fields
    file = whole_path(file)
    return Post(
        rank,
        (op, reduced, root, dtypes, sizes, orders),
        None if each < 0 else each,
        rows[:members],
        rows[members : 2 * members],
        op_name,
        reduce_op,
        dtypes_text,
        shown,
        Site(file, int(line), whole_name(file, int(line), function), via, _caller(callers)) if file else None,
        (laid[:in_laid], laid[in_laid:]),
    )


def _callers(site: Site, room: int) -> str:
    """File, function and line of each, the innermost first; those for which there is no room in bytes are left out.

    Behind the name of a function it stands if that has handed the call over.
    """
    told = ""
    while site.caller is not None:
        site = site.caller
        more = _BETWEEN.join((site.file.replace(_BETWEEN, "?"), site.function + site.via, str(site.line), ""))
        if len((told + more).encode("utf-8", "backslashreplace")) > room:
            break
        told += more
    return told


def _caller(told: str) -> Site | None:
    parts = told.split(_BETWEEN)
    found: Site | None = None
    for file, function, line in reversed(list(zip(parts[0::3], parts[1::3], parts[2::3], strict=False))):
        via = HANDED_OVER if function.endswith(HANDED_OVER) else ""
        found = Site(file, int(line), function.removesuffix(HANDED_OVER), via, found)
    return found
