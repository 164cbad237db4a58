"""Builds the plain data of a pickle that `opcodes.vet` has passed, opcode by opcode.

For the pickles that Python wrote, which keep tuples for later; torch's own are built by Python's unpickler. Only texts
and numbers become keys here: nothing is hashed whose depth or size the file does not bound.
"""

from __future__ import annotations

import struct
from typing import Any

from rankdrill.errors import DumpError

__all__ = ["build"]

_MARK = object()
_CONSTANTS = {ord("N"): None, 0x88: True, 0x89: False}
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
_TEXT = {0x58: 4, 0x8C: 1, 0x8D: 8}
_BYTES = {0x43: 1, 0x42: 4}
_NUMBERS = {ord("K"): "<B", ord("M"): "<H", ord("J"): "<i", ord("G"): ">d"}
_KEYS = (str, int, float, type(None))


class _Builder:
    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 2
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def build(self) -> object:
        while True:
            code = self._take(1)[0]
            if code == ord("."):
                return self._stack.pop()
            self._do(code)

    def _take(self, count: int) -> bytes:
        taken = self._raw[self._at : self._at + count]
        self._at += count
        return taken

    def _size(self, count: int) -> int:
        return int.from_bytes(self._take(count), "little")

    def _do(self, code: int) -> None:
        push = self._stack.append
        if code in _CONSTANTS:
            push(_CONSTANTS[code])
        elif code in _NUMBERS:
            push(struct.unpack(_NUMBERS[code], self._take(struct.calcsize(_NUMBERS[code])))[0])
        elif code in _TEXT:
            push(str(self._take(self._size(_TEXT[code])), "utf-8", "surrogatepass"))
        elif code in _BYTES:
            push(self._take(self._size(_BYTES[code])))
        elif code == 0x8A:
            push(int.from_bytes(self._take(self._size(1)), "little", signed=True))
        elif code in b"hj":
            push(self._memo[self._size(1 if code == ord("h") else 4)])
        elif code in b"qr":
            self._memo[self._size(1 if code == ord("q") else 4)] = self._stack[-1]
        elif code == 0x94:
            self._memo[len(self._memo)] = self._stack[-1]
        elif code == 0x95:
            self._take(8)  # a frame's length, which says nothing here
        else:
            self._collect(code)

    def _collect(self, code: int) -> None:
        push, pop = self._stack.append, self._stack.pop
        match chr(code):
            case "(":
                push(_MARK)
            case "]":
                push([])
            case "}":
                push({})
            case ")":
                push(())
            case "t":
                push(tuple(self._to_mark()))
            case "a":
                value = pop()
                self._list().append(value)
            case "e":
                values = self._to_mark()
                self._list().extend(values)
            case "s":
                value, key = pop(), pop()
                self._set([key, value])
            case "u":
                self._set(self._to_mark())
            case _:
                count = _TUPLES[code]
                made = tuple(self._stack[-count:])
                del self._stack[-count:]
                push(made)

    def _to_mark(self) -> list[Any]:
        values = []
        while (value := self._stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def _list(self) -> list[Any]:
        if type(self._stack[-1]) is not list:
            raise TypeError("appends to what is no list")
        return self._stack[-1]

    def _set(self, pairs: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not dict or not all(isinstance(key, _KEYS) for key in pairs[::2]):
            raise TypeError("sets what is no key of a dict")
        target.update(zip(pairs[::2], pairs[1::2], strict=True))


def build(raw: bytes) -> object:
    """The data of a pickle that has been vetted; raises `DumpError` where its opcodes make no sense."""
    try:
        return _Builder(raw).build()
    except (IndexError, KeyError, TypeError, ValueError, struct.error) as error:
        raise DumpError(f"is damaged: {type(error).__name__} in its pickle") from error
