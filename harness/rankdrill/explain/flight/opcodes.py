"""Which pickles are read: those that can only build plain data, and no more of it than their own length allows.

`vet` goes through all opcodes before anything is built. Nothing that imports, calls, or reaches outside of the file is
let through, so what is read then cannot run anything; nor is an opcode that reserves memory for what is not there. Runs
of opcodes of fixed length go through one regular expression: torch's dumps consist of little else, and 6 000 entries
take 6 ms.
"""

from __future__ import annotations

import re

from rankdrill.errors import DumpError

__all__ = ["vet"]

_MOST_DIGITS = 32  # bytes of a long number
_MOST_ODD_TUPLES = 1000
_INDEX = rb"..[\x00-\x3f]\x00"  # of the memo: for the highest the unpickler reserves twice as much

# A tuple of two texts is a group's name. Python's unpickler hashes keys of dicts, and may take for ever over a tuple of
# tuples kept from before, or run out of stack in one nested deep enough. So none is kept, and none may be the first
# half of the next: nothing follows that could lead there.
_ENDS_TUPLE = rb"\x86(?![q\x94r(\x95]|h.\x86|j....\x86)"
# No possessive quantifier, which Python gets wrong before 3.11.5 where what it repeats fails half-way (gh-106052); but
# what is greedy keeps all its steps until it has ended, so it is bounded.
_RUN = re.compile(
    rb"(?:h." + _ENDS_TUPLE + rb"|h.|[(\]eu}N\x88\x89a\x94s]|K.|M..|J....|q.|\x8a\x08........|G........"
    rb"|j" + _INDEX + _ENDS_TUPLE + rb"|j" + _INDEX + rb"|r" + _INDEX + rb"|\x95........){0,10000}",
    re.DOTALL,
)
_LENGTH_BYTES = {0x58: 4, 0x8C: 1, 0x8D: 8, 0x43: 1, 0x42: 4, 0x8A: 1}
"""What carries its own length: texts, bytes, and numbers of any size; in how many bytes that is said."""
_LONG, _STOP, _PROTO, _TUPLE2 = 0x8A, 0x2E, 0x80, 0x86
_TUPLES = frozenset(b")t\x85\x86\x87")
_PROTOCOLS = range(2, 6)
_REFUSED = {
    ord("c"): "GLOBAL, which imports",
    0x93: "STACK_GLOBAL, which imports",
    ord("i"): "INST, which imports and calls",
    ord("o"): "OBJ, which calls",
    0x81: "NEWOBJ, which calls",
    0x92: "NEWOBJ_EX, which calls",
    ord("R"): "REDUCE, which calls",
    ord("b"): "BUILD, which sets attributes",
    0x82: "EXT1, which imports",
    0x83: "EXT2, which imports",
    0x84: "EXT4, which imports",
    ord("P"): "PERSID, which calls",
    ord("Q"): "BINPERSID, which calls",
    0x96: "BYTEARRAY8, which reserves memory",
    0x97: "NEXT_BUFFER, which reaches outside",
    0x98: "READONLY_BUFFER, which reaches outside",
    0x8B: "LONG4, a number without end",
}
_FIXED = {
    ord("h"): 2,
    ord("q"): 2,
    ord("K"): 2,
    ord("M"): 3,
    ord("J"): 5,
    ord("j"): 5,
    ord("r"): 5,
    0x95: 9,
    ord("G"): 9,
}


def vet(raw: bytes) -> bool:
    """Whether Python's own unpickler may build `raw`; else `plain.build` may, which is slower.

    Raises `DumpError`, which says where, unless `raw` is a whole pickle of plain data.
    """
    if len(raw) < 2 or raw[0] != _PROTO or raw[1] not in _PROTOCOLS:
        raise DumpError("is no pickle of protocol 2 to 5")
    at, end, odd_tuples, quick = 2, len(raw), 0, True
    while at < end:
        match = _RUN.match(raw, at)
        assert match is not None  # nothing is a run, too
        at = match.end()
        if at >= end:
            break
        code = raw[at]
        if code == _STOP:
            return quick and odd_tuples <= _MOST_ODD_TUPLES
        if code in _TUPLES:
            odd_tuples += 1
            quick = quick and code == _TUPLE2 and raw[at + 1 : at + 2] not in (b"q", b"r", b"\x94")
            at += 1
        elif code in _LENGTH_BYTES or match.end() == match.start():
            at += _length(raw, at)
    raise DumpError(f"is cut off: of a pickle {end} bytes are there")


def _length(raw: bytes, at: int) -> int:
    """That of the opcode at `at`, with what it carries."""
    code = raw[at]
    length_bytes = _LENGTH_BYTES.get(code)
    if length_bytes is None:
        raise DumpError(_why_not(raw, at))
    length = int.from_bytes(raw[at + 1 : at + 1 + length_bytes], "little")
    if code == _LONG and length > _MOST_DIGITS:
        raise DumpError(f"has at byte {at} a number of {length} bytes; torch writes none of more than 8")
    return 1 + length_bytes + length


def _why_not(raw: bytes, at: int) -> str:
    code = raw[at]
    if len(raw) - at < _FIXED.get(code, 0):
        return f"is cut off: of a pickle {len(raw)} bytes are there"
    if code in b"jr":
        return f"has at byte {at} an index of {int.from_bytes(raw[at + 1 : at + 5], 'little')}, beyond all bounds"
    if code in _REFUSED:
        return f"has at byte {at} the opcode {_REFUSED[code]}; that is not read"
    return f"has at byte {at} the opcode 0x{code:02x}, which plain data does not need; that is not read"
