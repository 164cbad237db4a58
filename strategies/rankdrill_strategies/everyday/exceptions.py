"""Exceptions: with notes, causes, attributes, other exceptions."""

from __future__ import annotations

import asyncio
import json
import subprocess

from rankdrill_strategies import specimens
from rankdrill_strategies.everyday.table import Table

__all__ = ["EXCEPTIONS"]


def _noted() -> Exception:
    error = ValueError("a")
    error.add_note("on rank 1")
    return error


def _caused() -> Exception:
    error = RuntimeError("a")
    error.__cause__ = KeyError("b")  # which pickle drops
    return error


def _attributed() -> Exception:
    error = ValueError("a")
    error.code = 3  # type: ignore[attr-defined]  # anybody may
    return error


EXCEPTIONS: Table = (
    lambda: ValueError("a"),
    ValueError,
    lambda: KeyError("a"),
    lambda: ValueError("a", 1),
    lambda: ValueError(["a"]),
    _noted,
    _attributed,
    lambda: OSError(2, "No such file or directory", "a.pt"),
    lambda: OSError("a"),
    lambda: ConnectionResetError(104, "reset"),
    lambda: specimens.RefusalError([1]),
    _caused,
    lambda: ExceptionGroup("two", [ValueError("a"), OSError(5, "b")]),
    lambda: BaseExceptionGroup("one", [KeyboardInterrupt()]),
    lambda: KeyboardInterrupt(),
    lambda: SystemExit(3),
    lambda: StopIteration(1),
    lambda: MemoryError(),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    lambda: json.JSONDecodeError("a", "b", 0),
    lambda: subprocess.CalledProcessError(1, ["a"], b"out"),
    lambda: asyncio.IncompleteReadError(b"a", 2),
    lambda: UserWarning("a"),
    lambda: {"ok": False, "error": ValueError("a")},
    lambda: (None, ValueError("a")),
)
