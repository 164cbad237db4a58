"""The one way to what lies in `fixtures/`: data that tests read and no code makes."""

from __future__ import annotations

from pathlib import Path

__all__ = ["fixture"]

ROOT = Path(__file__).parents[1] / "fixtures"


def fixture(name: str) -> Path:
    """The folder `name`; each says in a line where it is from."""
    folder = ROOT / name
    assert (folder / "ORIGIN").read_text().strip(), f"{folder} has no line of origin"
    return folder
