"""pytest-forked runs a test in a fork of this process, which has no way to the ranks; they are processes anyway."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest

__all__ = ["FORKED", "without_forks"]

FORKED = "forked"
"""The option that has every test forked, and the mark that has one."""


@contextmanager
def without_forks(config: pytest.Config) -> Generator[None]:
    """Let what looks for the option not find it."""
    asked = getattr(config.option, FORKED, False)
    if not asked:
        yield
        return
    config.option.forked = False
    try:
        yield
    finally:
        config.option.forked = asked
