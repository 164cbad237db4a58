"""None, numbers, text and bytes: the first that a narrower type, a shorter header or another encoding loses."""

from __future__ import annotations

from collections.abc import Callable

from rankdrill_strategies.everyday.table import Table, fixed

__all__ = ["BYTES", "FLOATS", "INTS", "SINGLES", "TEXTS"]

SINGLES = fixed(None, False, True)

# In the order of their size: a failure shrinks to the smallest of them that shows it.
INTS = fixed(
    *(0, 1, -1, 2, 10, 127, 128, -129, 255, 256, 32768, 65536, (1 << 24) + 1, (1 << 31) - 1, 1 << 31, -(1 << 31) - 1),
    *(1 << 32, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, -(1 << 63) - 1, 1 << 64, 10**309),  # the last: beyond float64
    *(-128, -256, 32767, -32769, 65535, -(1 << 31), (1 << 32) - 1, -(1 << 63)),
)


def _floats(*texts: str) -> Table:
    return tuple(_float(text) for text in texts)


def _float(text: str) -> Callable[[], float]:
    return lambda: float(text)


FLOATS = _floats(
    *("0.0", "1.0", "0.5", "-1.5", "0.1", "1e-05", "16777217.0", "1e16", "0.30000000000000004", "65520.0", "3.5e38"),
    *("-0.0", "nan", "nan", "inf", "-inf", "1e22", "1e-46", "1.7976931348623157e308", "5e-324", "9007199254740993.0"),
)

# Those next to each other that the same mistakes lose: a failure shrinks to the first of them.
TEXTS = fixed(
    *(
        "",
        "a",
        "A",
        "0",
        "1",
        " ",
        " a ",
        "a\n",
        "a\r\nb",
        "\0",
        "a\0",
        "a\0b",
        "é",
        "ß",
        "\x80",
        "Ā",
        "€",
        "漢字",
        "😀",
    ),
    *("\ud800", "\ud83d\ude00", "€" * 86, "é" * 128, "a" * 255, "a" * 256, "a" * 65536, "None", "null", "'", '"', "\\"),
    *("\t", "\\n", "%s", "{}", ",", ":", "/", "True", "nan", "1.0", "[]", "\x7f", "\0a", "İ", "e\u0301", "ﬁ", "\ufeff"),
    *("\u2028", "\udc80", "\U0010ffff", "€" * 85, "a" * 1000, "€" * 22000, "a" * 65535),
)

BYTES = fixed(
    *(
        b"",
        b"",
        b"",
        b"a",
        b"\0",
        b"a\0",
        b"\0a",
        b"a" + b"\0" * 8,
        b"\1\0\0\0",
        b" ",
        b" a ",
        b"a\n",
        b"\r\n",
        b"\x80",
        b"\xff",
    ),
    *(b"\xc3\xa9", b"N.", b"\xff" * 8, b"a" * 255, b"a" * 256, b"a" * 257, bytes(range(256)), b"a" * 65536),
    *(b"\0" * 4, b"\x7f", b"\xe9", b"\x80\x04N.", b"None", b"{}", b"%s", b"'", b"--", b"a" * 1000, b"\0" * 512),
    *(b"a" * 4096, b"a" * 65535, b"a" * 65537),
)
