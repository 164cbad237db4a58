"""Strikes at objects: payloads that cannot be pickled, arrive damaged, or have grown."""

from __future__ import annotations

import io
import pickle
import threading
import zipfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from rankdrill.faults.steps import OBJECT_OPS
from rankdrill.faults.strike import Argument, Strike, at
from rankdrill.step import Kind

if TYPE_CHECKING:
    from rankdrill.boundary import Call, Proceed

__all__ = ["STRIKES", "RefusesToLoad", "grown"]
__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test

MAX_BYTES = 2**40
NO_OPCODE = b"\xff"
_OUTGOING = frozenset({"dumps", "dump", "save"})
_ARCHIVE = b"PK\3\4"  # what a zip archive starts with, and so what `torch.save` writes
_PAD = "rankdrill.padding"


class Oversize(Strike):
    name = "oversize"
    does = "The pickled payload is that many bytes larger, and still loads to the same object."
    seen = "A payload that has grown past the buffer or the limit: one rank's log, one long string."
    on = at({Kind.OBJECT: _OUTGOING})
    arguments = (Argument("bytes", int, 1, MAX_BYTES, "bytes"),)

    def strike(self, call: Call, proceed: Proceed) -> Any:
        return _altered(call, proceed, lambda data: grown(data, int(self.values[0])))


class Unpicklable(Strike):
    name = "unpicklable"
    does = "The object holds a lock besides, so the real pickler fails on it, part of the stream already written."
    seen = "A lock, a generator, an open file in a payload: `TypeError: cannot pickle '_thread.lock' object`."
    on = at({Kind.OBJECT: _OUTGOING})

    def strike(self, call: Call, proceed: Proceed) -> Any:
        return proceed(call.with_args(obj=(call.args["obj"], threading.Lock())))


class Corrupt(Strike):
    name = "corrupt"
    does = "The first byte of the pickled bytes is altered, so that they never load; their length stays."
    seen = "Ranks whose buffers are mixed up, a bad link: `UnpicklingError: invalid load key`."
    on = at({Kind.OBJECT: OBJECT_OPS})

    def strike(self, call: Call, proceed: Proceed) -> Any:
        return _altered(call, proceed, lambda data: NO_OPCODE + data[1:])


class Truncate(Strike):
    name = "truncate"
    does = "Only the first half of the pickled bytes is there."
    seen = "A buffer that is too short, a file read while it is written: `EOFError`, `pickle data was truncated`."
    on = at({Kind.OBJECT: OBJECT_OPS})

    def strike(self, call: Call, proceed: Proceed) -> Any:
        return _altered(call, proceed, lambda data: data[: len(data) // 2])


class FailsToLoad(Strike):
    name = "fails_to_load"
    does = "The object can be pickled, but raises UnpicklingError wherever it is loaded; at a load, it raises there."
    seen = "A class that the other ranks cannot import, or whose constructor raises there."
    on = at({Kind.OBJECT: OBJECT_OPS})

    def strike(self, call: Call, proceed: Proceed) -> Any:
        if call.step.op in _OUTGOING:
            return proceed(call.with_args(obj=RefusesToLoad(call.step.target)))
        return refuse_to_load(call.step.target)


class RefusesToLoad:
    """Pickles well; raises `pickle.UnpicklingError` when it is loaded."""

    def __init__(self, instead_of: str) -> None:
        self.instead_of = instead_of

    def __reduce__(self) -> tuple[Callable[[str], NoReturn], tuple[str]]:
        return refuse_to_load, (self.instead_of,)


def refuse_to_load(what: str) -> NoReturn:
    """What unpickling a `RefusesToLoad` calls."""
    raise pickle.UnpicklingError(f"{what} does not load here (planned)")


def grown(data: bytes, by: int) -> bytes:
    """Pickled or saved bytes, `by` bytes larger, that load to the same object."""
    if data.startswith(_ARCHIVE):  # not `is_zipfile`: a pickle that holds an archive is one to that
        archive = io.BytesIO(data)
        with zipfile.ZipFile(archive, "a", zipfile.ZIP_STORED) as file:
            root = file.namelist()[0].split("/")[0]
            file.writestr(f"{root}/{_PAD}", bytes(by))
        return archive.getvalue()
    # In front and not behind the stream: what follows in the same file must still be found. It is pushed, popped.
    head = pickle.PROTO + b"\x04"
    spent = len(head) + len(pickle.BINBYTES8) + 8 + len(pickle.POP)
    if by < spent:
        return _nudged(data, by)
    return head + pickle.BINBYTES8 + (by - spent).to_bytes(8, "little") + bytes(by - spent) + pickle.POP + data


def _nudged(data: bytes, by: int) -> bytes:
    # Too few bytes for a padding in front; MARK and POP_MARK come in twos, NONE and POP too.
    pairs, odd = divmod(by, 2)
    head = (pickle.NONE + pickle.POP) * pairs
    if odd:
        # Three bytes that do nothing in place of one pair; a single byte can only come after the end.
        head = head[2:] + pickle.MARK + pickle.NONE + pickle.POP_MARK if pairs else head
    return head + data if not odd or pairs else data + pickle.STOP


def _altered(call: Call, proceed: Proceed, alter: Callable[[bytes], bytes]) -> Any:
    """Proceed with altered bytes, whichever way they cross."""
    match call.step.op:
        case "dumps":
            return alter(proceed(call))
        case "dump" | "save":
            written = io.BytesIO()
            result = proceed(call.with_args(file=written))
            call.args["file"].write(alter(written.getvalue()))
            return result
        case "loads":
            return proceed(call.with_args(data=alter(bytes(call.args["data"]))))
        case _:
            return proceed(call.with_args(file=io.BytesIO(alter(call.args["file"].read()))))


STRIKES: tuple[type[Strike], ...] = (Oversize, Unpicklable, Corrupt, Truncate, FailsToLoad)
