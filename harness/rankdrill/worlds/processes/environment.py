"""This process's environment variables, read as cheaply as they can be: before and after each test, on each rank."""

from __future__ import annotations

import os

__all__ = ["decoded", "for_ranks", "read_environment"]

CURRENT_TEST = b"PYTEST_CURRENT_TEST"
"""Changes with every phase of every test; each process has its own."""


def read_environment() -> dict[bytes, bytes]:
    """The variables as the system has them, but for `CURRENT_TEST`.

    As `os` keeps them: `dict(os.environb)` decodes and encodes every name, which takes fifty microseconds.
    """
    found: dict[bytes, bytes] = dict(os.environ._data)  # type: ignore[attr-defined]
    found.pop(CURRENT_TEST, None)
    return found


def decoded(environ: dict[bytes, bytes]) -> dict[str, str]:
    """The same, as `os.environ` shows them."""
    return {os.fsdecode(name): os.fsdecode(value) for name, value in environ.items()}


def for_ranks(environ: dict[bytes, bytes]) -> dict[str, str]:
    """The variables that ranks are to have: these, and what torchrun sets where nobody else does."""
    return {"OMP_NUM_THREADS": "1", **decoded(environ)}
