"""Self-contained pages: style, script and data in one file that asks no network for anything.

Whatever was recorded reaches the page as JSON that no parser takes for anything else, and is written into it as text
alone: a name with HTML in it is shown, not followed.
"""

from __future__ import annotations

import json
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

__all__ = ["Strings", "page"]

_FRAME = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main id="page"><noscript>This page needs JavaScript; the same is in the file of --json.</noscript></main>
<script type="application/json" id="data">{data}</script>
<script>
{script}</script>
</body>
</html>
"""


class Strings:
    """A table of texts: what is said a thousand times stands in the page once."""

    def __init__(self) -> None:
        self.table: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.table)
            self.table.append(text)
        return self._numbers[text]


def page(title: str, script: str, data: dict[str, Any]) -> str:
    """A page whose `script`, a file of report/pages, shows `data`."""
    return _FRAME.format(
        title=escape(title), style=_part("style.css"), script=_part("element.js") + _part(script), data=_inert(data)
    )


def _inert(data: dict[str, Any]) -> str:
    """JSON that cannot end the element it stands in, nor begin another."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _part(name: str) -> str:
    return files("rankdrill.report").joinpath("pages", name).read_text(encoding="utf-8")
