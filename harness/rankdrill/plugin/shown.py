"""How the failure of a test on ranks is shown in pytest's own section for it."""

from __future__ import annotations

from collections.abc import Sequence

from rankdrill.plugin.pytest_seam import ReprFileLocation, TerminalRepr, TerminalWriter
from rankdrill.worlds.told import Block

__all__ = ["MergedFailure"]


class MergedFailure(TerminalRepr):
    """The failure section of a test on ranks."""

    def __init__(self, headline: str, blocks: Sequence[Block], victims: Sequence[str], where: tuple[str, int]) -> None:
        self.headline = headline
        self.blocks = blocks
        self.victims = victims
        self.sections: list[tuple[str, str]] = []
        # pytest's short summary line and JUnit's message attribute are taken from here.
        self.reprcrash = ReprFileLocation(where[0], where[1], headline)

    def toterminal(self, tw: TerminalWriter) -> None:
        """Write it as pytest writes failures: error lines red, the failing line bold."""
        tw.line(self.headline, red=True, bold=True)
        for block in self.blocks:
            tw.line("")
            if block.heading != self.headline:
                tw.line(block.heading, bold=True)
                if block.text:
                    tw.line("")
            for line in block.text.splitlines():
                tw.line(line, red=line.startswith("E "), bold=line.startswith((">", "E ")))
        if self.victims:
            tw.line("")
            tw.line("victims:", bold=True)
            for line in self.victims:
                tw.line(f"  {line}")
        for name, text in self.sections:
            tw.line("")
            tw.line(f"{name}:", bold=True)
            for line in text.splitlines():
                tw.line(f"  {line}")
