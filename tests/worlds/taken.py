"""What somebody may make where a user's directory is to be, since everybody knows its name."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import pytest

__all__ = ["TAKEN", "some", "take"]

STRANGER = 12345

TAKEN = {
    "open": r"is yours, but not private to you \(mode 777\)",
    "of a group": r"is yours, but not private to you \(mode 710\)",
    "foreign": f"belongs to user {STRANGER}.*",
    "link": r"is a link, made by user \d+.*",
    "foreign link": f"is a link, made by user {STRANGER}.*",
    "dangling link": r"is a link, made by user \d+.*",
    "file": r"is no directory, made by user \d+.*",
    "pipe": r"is no directory, made by user \d+.*",
}
"""By name: what `rankdrill.worlds.home` says of it."""


def some(*names: str, nightly: Collection[str] = ()) -> pytest.MarkDecorator:
    """A test of each, as its argument `how`; of all there are if none is named. Those that are `nightly` run then."""
    only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give something away")
    marked = [
        pytest.param(how, marks=[only_root] * how.startswith("foreign") + [pytest.mark.nightly] * (how in nightly))
        for how in names or TAKEN
    ]
    return pytest.mark.parametrize("how", marked)


def take(place: Path, how: str) -> None:
    """Be at `place` before its user is, in the way that `how` names."""
    match how:
        case "open" | "of a group" | "foreign":
            place.mkdir()
            place.chmod({"open": 0o777, "of a group": 0o710, "foreign": 0o700}[how])
        case "link" | "foreign link" | "dangling link":
            target = place.with_name(f"{place.name}-target")
            place.symlink_to(target)
            if how != "dangling link":
                target.mkdir(mode=0o700)
        case "file":
            place.write_text("")
        case "pipe":
            os.mkfifo(place)
    if how.startswith("foreign"):
        os.chown(place, STRANGER, STRANGER, follow_symlinks=False)
