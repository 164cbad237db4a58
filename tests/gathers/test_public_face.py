"""What the package offers, and what it needs."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import rankdrill.gathers
from rankdrill import gathers


def test_importing_the_gathers_imports_no_other_part() -> None:
    code = (
        "import sys, threading, rankdrill.gathers\n"
        "assert threading.active_count() == 1\n"
        "print(sorted(m for m in sys.modules if m.startswith('rankdrill.') and '.gathers' not in m))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "['rankdrill.errors']"


def test_the_face_defines_nothing() -> None:
    text = pathlib.Path(str(gathers.__file__)).read_text()
    assert len(text.splitlines()) < 40
    assert "def " not in text
    assert all(hasattr(rankdrill.gathers, name) for name in gathers.__all__)
