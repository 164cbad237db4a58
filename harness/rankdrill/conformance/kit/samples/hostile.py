"""Payloads that fail in the caller's own code, on the one rank that sends or on those that receive."""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections.abc import Callable
from typing import Any

from rankdrill.conformance.adapter import Adapter

__all__ = ["TOO_LARGE", "contributed", "hostile_to", "spoiled_payload"]


class AwkwardError(Exception):
    """An error that does not come through a pickle: it is made from two things, and keeps one."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")


class _LockedError(Exception):
    """An error that cannot be pickled: it holds a lock."""

    def __init__(self) -> None:
        super().__init__("this payload cannot be had, nor can this error be pickled")
        self.lock = threading.Lock()


class _Unpicklable:
    def __reduce__(self) -> Any:
        raise RuntimeError("this payload cannot be pickled")


class _UnpicklableAwkwardly:
    def __reduce__(self) -> Any:
        raise AwkwardError("this payload", "it cannot be pickled, nor can this error")


class _UnpicklableLocked:
    def __reduce__(self) -> Any:
        raise _LockedError


class _FailsToLoad:
    def __reduce__(self) -> Any:
        return _fail, ()


def _fail() -> Any:
    raise RuntimeError("this payload cannot be loaded")


def _fail_awkwardly() -> Any:
    raise AwkwardError("this payload", "it cannot be had, nor can this error be loaded")


def _fail_locked() -> Any:
    raise _LockedError


_PAYLOADS: dict[str, Callable[[], Any]] = {
    "a payload that does not pickle": _Unpicklable,
    "a payload whose error does not load": _UnpicklableAwkwardly,
    "a payload whose error does not pickle": _UnpicklableLocked,
    "a payload that does not load": _FailsToLoad,
}
_FUNCTIONS: dict[str, Callable[[], Any]] = {
    "a function that raises": _fail,
    "a function whose error does not load": _fail_awkwardly,
    "a function whose error does not pickle": _fail_locked,
}
_ENOUGH_ROOM = 1 << 10  # bytes, to see whether one is beyond a bound
TOO_LARGE = "a payload beyond the bound"
"""Who has no bound may carry it all the same."""


def hostile_to(adapter: Adapter) -> list[str]:
    """What can be the matter with a payload: nothing with a number, or with a tensor, or where `dress` mends it."""
    found = list(_FUNCTIONS) if adapter.takes == "functions" else []
    if adapter.takes in ("objects", "dicts", "lists", "functions"):
        found += (spoiled for spoiled in (*_PAYLOADS, TOO_LARGE) if _stays_spoiled(adapter, spoiled))
    return found


def _stays_spoiled(adapter: Adapter, spoiled: str) -> bool:
    """Whether what is the matter with a payload is so when it is dressed."""
    room = min(adapter.room, _ENOUGH_ROOM)
    payload = spoiled_payload(adapter, spoiled, room)
    with contextlib.suppress(Exception):  # it looks into payloads, and this one is then sent as it is
        payload = adapter.dressed(payload, 0, 2, 0)
    try:
        raw = pickle.dumps(payload)
        pickle.loads(raw)
    except Exception:
        return True
    return spoiled == TOO_LARGE and len(raw) > room


def spoiled_payload(adapter: Adapter, spoiled: str, room: int) -> Any:
    """The payload that has that the matter with it, where payloads are to have no more than `room` bytes."""
    if spoiled in _FUNCTIONS:
        return None  # it is never had
    payload = bytes(room + 1) if spoiled == TOO_LARGE else _PAYLOADS[spoiled]()
    return {"dicts": {"it": payload}, "lists": [payload]}.get(str(adapter.takes), payload)


def contributed(adapter: Adapter, payload: Any, spoiled: str = "") -> Any:
    """What the gather is given: the payload, or a function that returns it."""
    if adapter.takes != "functions":
        return payload
    return _FUNCTIONS.get(spoiled, lambda: payload)
