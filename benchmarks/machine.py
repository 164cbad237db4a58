"""What a benchmark says of the machine that it ran on."""

from __future__ import annotations

import os
import platform

__all__ = ["machine"]


def machine(**more: str) -> dict[str, object]:
    """Cores, Python and load, and `more`: versions of what was measured."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **more,
        "load": os.getloadavg(),  # who else was there
    }
