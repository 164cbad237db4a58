"""Payloads that fail in the caller's own code, on the one rank that sends or on those that receive."""

from __future__ import annotations

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
TOO_LARGE = "a payload beyond the bound"
"""Who has no bound may carry it all the same."""


def hostile_to(adapter: Adapter) -> list[str]:
    """What can be the matter with a payload: nothing with a number, or with a tensor."""
    found = list(_FUNCTIONS) if adapter.takes == "functions" else []
    found += list(_PAYLOADS) if adapter.takes in ("objects", "dicts", "lists", "functions") else []
    return [*found, TOO_LARGE] if found else found


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
