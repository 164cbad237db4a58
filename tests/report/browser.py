"""Pages in Debian's Chromium: what a reader sees once their scripts have run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

__all__ = ["data_of", "in_a_browser", "opened", "text_of"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
in_a_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed here (apt-get install chromium)")


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def opened(folder: Path, page: str, part: str = "", *, doing: str = "") -> str:
    """The document as Chromium has it once its scripts have run, and `doing` after them; fails where one complained."""
    file = folder / "page.html"
    acting = f"<script>setTimeout(() => {{ {doing} }}, 500)</script></body>"
    file.write_text(page.replace("</body>", acting) if doing else page, encoding="utf-8")
    assert BROWSER is not None
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0")
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [BROWSER, *options, profile, "--virtual-time-budget=5000", "--dump-dom", f"{file.as_uri()}{part}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert ":CONSOLE" not in ran.stderr, ran.stderr
    return ran.stdout


def text_of(dom: str) -> str:
    """What is to be read, without the scripts and the data."""
    without = re.sub(r"<(script|style).*?</\1>", "", dom, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", "", without)).split())
