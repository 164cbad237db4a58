"""Payloads that fail in the caller's own code, on the one rank that sends or on those that receive."""

from __future__ import annotations

from typing import Any

__all__ = ["HOSTILE"]


class AwkwardError(Exception):
    """An error that does not come through a pickle: it is made from two things, and keeps one."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")


class _Unpicklable:
    def __reduce__(self) -> Any:
        raise RuntimeError("this payload cannot be pickled")


class _UnpicklableAwkwardly:
    def __reduce__(self) -> Any:
        raise AwkwardError("this payload", "it cannot be pickled, nor can this error")


class _FailsToLoad:
    def __reduce__(self) -> Any:
        return _fail, ()


def _fail() -> Any:
    raise RuntimeError("this payload cannot be loaded")


HOSTILE: dict[str, Any] = {
    "a payload that does not pickle": _Unpicklable,
    "a payload whose error does not pickle": _UnpicklableAwkwardly,
    "a payload that does not load": _FailsToLoad,
}
"""Makers of payloads, by what is the matter with them."""
