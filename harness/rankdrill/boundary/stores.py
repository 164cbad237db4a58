"""The store's calls become steps: those that the user, or a library, makes; not those of torch and of rankdrill.

Which keys C++ sets and awaits by itself, as groups are made, no patch sees.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from hashlib import blake2b
from types import CodeType
from typing import Any

import torch.distributed as dist

from rankdrill.boundary.callsites import call_site, owner_of
from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.gate import Call
from rankdrill.boundary.meetings import of_all, post
from rankdrill.boundary.patch import Patch
from rankdrill.boundary.store_names import STORES, StoreName, StoreNames
from rankdrill.boundary.territory import Territory
from rankdrill.step import ADDS_NOTHING, STORE_MEETS, STORE_WAITS, Kind, Step, StoreKey
from rankdrill.whose import Whose

__all__ = ["STORE_FUNCTIONS", "store_patches"]

__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test

# Function of a store -> whether what it is given beside the key is worth telling: the value.
STORE_FUNCTIONS = {
    "add": True,
    "append": True,
    "barrier": False,
    "check": False,
    "compare_set": True,
    "delete_key": False,
    "get": False,
    "multi_get": False,
    "multi_set": True,
    "queue_len": False,
    "queue_pop": False,
    "queue_push": True,
    "set": True,
    "wait": False,
}
_SETS, _GETS = frozenset({"set", "multi_set"}), frozenset({"get", "multi_get", "check"})  # what updates consist of
_SWAPS = "compare_set"
MOST_KEYS = 64  # of one call, that have a record each
_LONG = 40  # characters of a value that are shown
# Made for users, of a store's calls; everything else in torch that uses a store does so for itself.
_HELPERS = os.path.join("distributed", "elastic", "utils", "store.py")


def store_patches(boundary: Boundary, territory: Territory) -> Iterator[Patch]:
    """What makes calls of stores steps of `boundary`."""
    names = StoreNames(territory)
    yield from names.patches()
    for cls in STORES:
        for op in STORE_FUNCTIONS:
            if hasattr(cls, op):  # an older torch has fewer
                yield Patch(cls, op, _calling(op, boundary, names))


def _calling(op: str, boundary: Boundary, names: StoreNames) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def called(store: Any, *args: Any, **kwargs: Any) -> Any:
            if not boundary.open or not _is_the_users(sys._getframe(1).f_code):
                return original(store, *args, **kwargs)
            name, meets = names.of(store), op in STORE_MEETS
            keys = _keys(args, kwargs)
            if name is None or not keys:
                return original(store, *args, **kwargs)
            patience = _patience(store, args, kwargs) if meets or op in STORE_WAITS else 0.0
            first, *more = _in_order(op, store, keys, name, boundary)
            digests = [key.digest for key in (first, *more[:MOST_KEYS])]

            if op in _SETS or (op == _SWAPS and _expects_something(args, kwargs)):
                boundary.updates.about_to_set(*digests)

            def real(call: Call) -> Any:
                if meets:
                    post(call.step, boundary)
                rest = [
                    boundary.note(_step(op, key, _told(op, key, args, place)))
                    for place, key in enumerate(more[:MOST_KEYS], 1)
                ]
                for index in (call.record, *rest):
                    boundary.be_patient(index, patience)
                with boundary.noted(rest):
                    return original(store, *args, **kwargs)

            told = of_all(first, args, kwargs) if meets else _told(op, first, args, 0)
            described: dict[str, Any] = {"keys": keys}
            if not meets:
                described["given"] = (*args[1:], *(value for key, value in kwargs.items() if key != "key"))
            answer = boundary.cross(_step(op, first, told), described, real)
            if op in _GETS or (op == "add" and told == ADDS_NOTHING):
                boundary.updates.got(*digests)
            return answer

        return called

    return make


def _step(op: str, key: StoreKey, told: str) -> Step:
    return Step(Kind.STORE, op, key.shown, told, site=call_site(), digest=key.digest)


def _is_the_users(code: CodeType) -> bool:
    owner = owner_of(code)
    return owner in (Whose.USER, Whose.LIBRARY) or (owner is Whose.TORCH and code.co_filename.endswith(_HELPERS))


def _expects_something(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a key is swapped that is there; who expects nothing sets one that is not."""
    return bool(args[1] if len(args) > 1 else kwargs.get("expected_value"))


def _keys(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[str, ...]:
    """The keys that are meant; none where the real call will say what is wrong with them."""
    given = args[0] if args else kwargs.get("key")
    keys = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list | tuple) else ()
    return keys if all(isinstance(key, str) for key in keys) else ()


def _in_order(op: str, store: Any, keys: Sequence[str], name: StoreName, boundary: Boundary) -> list[StoreKey]:
    """`keys` as everybody calls them; of several that are awaited those first that are not there."""
    ordered = list(keys)
    if len(ordered) > 1 and op in STORE_WAITS:
        with boundary.closed(), suppress(dist.DistError, RuntimeError):  # the real call will say it
            ordered.sort(key=lambda key: bool(store.check([key])))
    return [name.key(key) for key in ordered]


def _patience(store: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> float:
    """Seconds after which the call gives up by itself."""
    given = next((value for value in (*args, *kwargs.values()) if isinstance(value, timedelta)), None)
    if given is not None:
        return given.total_seconds()
    while hasattr(store, "underlying_store"):  # a prefix has a timeout of its own, and does not use it
        store = store.underlying_store
    return float(store.timeout.total_seconds())


def _told(op: str, key: StoreKey, args: Sequence[Any], place: int) -> str:
    """What is written, so that equal values read alike; of what writes nothing, the store."""
    if not STORE_FUNCTIONS[op]:
        return key.store
    given = [_part(each, place) if op == "multi_set" else each for each in args[1:]]
    return " to ".join(f"{each:+d}" if isinstance(each, int) else _shown(each) for each in given)


def _part(values: Any, place: int) -> Any:
    return values[place] if isinstance(values, list | tuple) and place < len(values) else values


def _shown(value: Any) -> str:
    """The long by their size and a digest; nothing of what no store takes."""
    raw = value.encode("utf-8", "backslashreplace") if isinstance(value, str) else value
    if not isinstance(raw, bytes):
        return type(raw).__name__
    text = repr(raw.decode("utf-8", "backslashreplace"))
    return text if len(text) <= _LONG else f"{len(raw)} bytes {blake2b(raw, digest_size=6).hexdigest()}"
