"""Memory moved into huge pages: the same to the process, and huge where the kernel has such pages."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
SOURCE = """
import re
from pathlib import Path
from rankdrill.worlds.processes.pages import collapse_memory

kept = [bytes([number % 256]) * 1_000_003 for number in range(64)]
collapse_memory()
collapse_memory()  # after a preload it is done again
assert all(part == bytes([number % 256]) * 1_000_003 for number, part in enumerate(kept))
print(re.search(r"AnonHugePages: +(\\d+)", Path("/proc/self/smaps_rollup").read_text())[1])
"""


def huge_kilobytes() -> int:
    ran = subprocess.run([sys.executable, "-c", SOURCE], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout)


def test_contents_stay() -> None:
    assert huge_kilobytes() >= 0


def test_pages_are_huge_where_there_are_any() -> None:
    version = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])
    if version < (6, 1) or not SETTING.exists() or "[never]" in SETTING.read_text():
        pytest.skip("this kernel moves no memory into huge pages when asked to")
    assert huge_kilobytes() > 0
