"""Whole texts compared with those in `fixtures/reports`, and accepted there when somebody says so."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

import pytest

__all__ = ["agrees", "steady"]

ACCEPT = "RANKDRILL_ACCEPT"

# What differs from run to run, machine to machine, release to release, and what stands for it.
VOLATILE = [
    (r"0x[0-9a-f]+", "0x…"),
    (r"\b\d+\.\d+ ?s\b", "N s"),
    # What Python underlines in a group's traceback, and with which marks: 3.13 chose other ones.
    (r"^ *\| *[~^][~^ ]*\n", ""),
    # Frames of libraries, and ours: their lines and wrappers are those of a release.
    (
        r'(?:^(?P<bar>[ |]*)File ".*(?:site-packages|/lib/python3[.0-9]*|harness/rankdrill)/.*", line \d+,? in .*\n'
        r"(?:(?P=bar)  .*\n)*)+",
        r"\g<bar>(frames of libraries)\n",
    ),
    # Which end notices first that a connection is gone, and in which words.
    (r"RuntimeError: .*? \[in ", "RuntimeError: (words of gloo) [in "),
    # Which system call a C library sleeps in, and whether the kernel tells it.
    (r"(?:asleep|waiting in the kernel) \(\w+\)", "asleep (…)"),
    (r"Falsifying example:", "Failing test case:"),
]


def steady(text: str, folder: Path) -> str:
    """`text` without what is volatile in it; paths below `folder` are relative."""
    text = text.replace(f"{folder}/", "")
    for pattern, stands_for in VOLATILE:
        text = re.sub(pattern, stands_for, text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def agrees(text: str, golden: Path) -> None:
    """Fail unless `text` is what `golden` holds; with RANKDRILL_ACCEPT=1 in the environment, write it there."""
    if os.environ.get(ACCEPT) == "1":
        golden.write_text(text)
        return
    expected = golden.read_text() if golden.exists() else ""
    if text != expected:
        names = f"fixtures/{golden.parent.name}/{golden.name}", "now"
        diff = "\n".join(difflib.unified_diff(expected.splitlines(), text.splitlines(), *names, lineterm=""))
        pytest.fail(f"{diff}\n\nIf the new text reads well, run this test again with {ACCEPT}=1.", pytrace=False)
