"""What `rankdrill drill` can be told: paths, strikes, payloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["print_listing"]


def print_listing(out: Console, sections: Mapping[str, Iterable[tuple[str, str]]]) -> None:
    """Print names with what they mean, by section."""
    for title, entries in sections.items():
        out.print(Text(title, "bold"))
        table = Table.grid(padding=(0, 2), pad_edge=True)
        table.add_column(no_wrap=True)
        table.add_column(style="dim")
        for name, about in entries:
            table.add_row(Text(name), Text(about))
        out.print(table)
        out.print()
