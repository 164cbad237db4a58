"""PMI-1, the protocol that MPICH's ranks ask their process manager by: a line each of ``key=value`` words.

Described in "PMI: A Scalable Parallel Process-Management Interface for Extreme-Scale Systems" (Balaji and others,
2010), and in the comments of MPICH's ``simple_pmi.c``. A value runs to the next space, or to the end of its line.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["KEY_BYTES", "LINE_BYTES", "NAME_BYTES", "VALUE_BYTES", "BadLine", "LineReader", "line_of"]

NAME_BYTES, KEY_BYTES, VALUE_BYTES = 256, 64, 1024  # what hydra tells ranks that they may use
LINE_BYTES = 4096  # of a request: three of these and what stands between them


class BadLine(Exception):  # noqa: N818 (it says what there is)
    """What is no line of this protocol, or too long a one."""


class LineReader:
    """Lines out of bytes as they come, at most `LINE_BYTES` each."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, raw: bytes) -> list[dict[str, str]]:
        """The lines that are whole by now; raises `BadLine`."""
        *lines, self._rest = (self._rest + raw).split(b"\n")
        if any(len(line) > LINE_BYTES for line in (*lines, self._rest)):
            raise BadLine(f"a line of more than {LINE_BYTES} bytes")
        return [_words_of(line) for line in lines if line.strip()]


def _words_of(line: bytes) -> dict[str, str]:
    words: dict[str, str] = {}
    try:
        for word in line.decode("ascii").split():
            name, equals, value = word.partition("=")
            # A spawn's request has lines of one word each, and one that says that it ends.
            words[name] = value if equals else ""
    except UnicodeDecodeError as error:
        raise BadLine(str(error)) from None
    return words


def line_of(command: str, words: Mapping[str, object]) -> bytes:
    """The line that says `command`, with these words."""
    return " ".join([f"cmd={command}", *(f"{name}={value}" for name, value in words.items())]).encode() + b"\n"
