"""How a rank's process ended, where it did not come to the end of its body."""

from __future__ import annotations

from dataclasses import dataclass
from signal import Signals

from rankdrill.step import Site

__all__ = ["Death"]


@dataclass(frozen=True, slots=True)
class Death:
    """How a process ended: by `signal` or with exit `code`; `at_ns` on the machine's monotonic clock.

    `how` is what more is known, in words, such as ``by os._exit`` or ``by the kernel: out of memory (…)``; `site` the
    line of the user's that it happened at. Who sends a signal cannot be known, and is not guessed.
    """

    code: int | None
    signal: int | None
    at_ns: int
    how: str = ""
    site: Site | None = None

    @property
    def ended(self) -> str:
        """``killed by SIGSEGV``, ``exited with code 3``."""
        if self.signal is None:
            return f"exited with code {self.code}"
        try:
            return f"killed by {Signals(self.signal).name}"
        except ValueError:
            return f"killed by signal {self.signal}"

    def __str__(self) -> str:
        how = f", {self.how}" if self.how else ""
        return f"{self.ended}{how}{f' at {self.site}' if self.site is not None else ''}"
