"""What `rankdrill drill` can be told: paths, strikes, payloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.text import Text

__all__ = ["print_listing"]


def print_listing(out: Console, sections: Mapping[str, Iterable[tuple[str, str]]]) -> None:
    """Print names with what they mean, by section."""
    for title, entries in sections.items():
        out.print(Text(title, "bold"))
        rows = list(entries)
        width = max((len(name) for name, _ in rows), default=0)
        for name, about in rows:
            out.print(Text.assemble(f"  {name:<{width}}  ", (about, "dim")))
        out.print()
