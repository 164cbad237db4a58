"""The terminal that commands print to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["terminal"]

_PLAIN_WIDTH = 120  # in files and pipes, which have no width of their own


def terminal(*, stderr: bool = False) -> Console:
    """A console on standard output or error; NO_COLOR and FORCE_COLOR are heeded."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    return console
