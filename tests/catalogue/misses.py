"""The mistakes that rankdrill is known not to tell strictly right: data, with reasons, that can only shrink."""

from __future__ import annotations

import tomllib
from pathlib import Path

__all__ = ["known_misses"]

_FILE = Path(__file__).with_name("misses.toml")


def known_misses() -> dict[str, str]:
    """Why, by the program's name."""
    found: dict[str, str] = {}
    for reason in tomllib.loads(_FILE.read_text())["miss"]:
        for name in reason["programs"]:
            if name in found:
                raise ValueError(f"{_FILE.name} lists {name} twice")
            found[name] = reason["why"]
    return found
