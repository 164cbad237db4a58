"""Pages of the server, taken apart as they come: what each rank has answered. The server escapes nothing in them."""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from rankdrill.errors import UsageError
from rankdrill.explain.flight.columns import MOST_RANKS
from rankdrill.explain.flight.load import MOST_BYTES

__all__ = ["Answer", "NoPageError", "answers", "is_address"]

MOST_PAGE = 4 << 30  # bytes of one page, of which one rank's part is held at a time
MOST_S = 150.0  # for a page: the server itself waits for 60 s for the ranks
SILENCE_S = 90.0
_CHUNK = 1 << 16
_PART = re.compile(rb"<h[23]>Rank (\d{1,7}): [^<\n]{0,1000}</h[23]>")
_STATUS = re.compile(rb"\s*<p>Failed to fetch: status=(\d{3})</p>")
_BODY = re.compile(rb"\s*<pre>")
_END = b"</pre>"
_LONGEST_HEADING = 1100


class NoPageError(UsageError):
    """There is no such page: older torch has not all of them."""


@dataclass(frozen=True)
class Answer:
    """What a rank has answered, or the `error` with which it did not."""

    rank: int
    body: bytes = b""
    error: str = ""


def is_address(text: str) -> bool:
    """Whether it is the address of a server."""
    return urlsplit(text).scheme in ("http", "https")


def answers(address: str, page: str) -> Iterator[Answer]:
    """The answers of all ranks on `page` of the server at `address`; raises `UsageError` where there is none."""
    place = urlsplit(address)
    if place.scheme != "http" or not place.hostname:
        raise UsageError(f"{address}: torch's debug server is asked by http://HOST:PORT")
    try:
        port = place.port or 80
    except ValueError as error:
        raise UsageError(f"{address}: {error}") from error
    connection = http.client.HTTPConnection(place.hostname, port, timeout=SILENCE_S)
    try:
        connection.request("GET", f"{place.path.rstrip('/')}/{page}")
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise NoPageError(f"{address}/{page} answers with status {response.status}: is it torch's debug server?")
        yield from _parts(_chunks(response, f"{address}/{page}"))
    except (OSError, http.client.HTTPException) as error:
        raise UsageError(f"{address}/{page} does not answer: {error or type(error).__name__}") from error
    finally:
        connection.close()


def _chunks(response: http.client.HTTPResponse, where: str) -> Iterator[bytes]:
    began, total = time.monotonic(), 0
    while chunk := response.read1(_CHUNK):
        total += len(chunk)
        if total > MOST_PAGE:
            raise UsageError(f"{where} has more than {MOST_PAGE >> 30} GiB: it is no page of torch's debug server")
        if time.monotonic() - began > MOST_S:
            raise UsageError(f"{where} has not ended after {MOST_S:.0f} s")
        yield chunk


def _parts(chunks: Iterator[bytes]) -> Iterator[Answer]:
    """One rank's part after the other; of a part that is too long only that it is."""
    rank, held, searched, too_long = -1, bytearray(), 0, False
    for chunk in chunks:
        held += chunk
        while (match := _PART.search(held, max(0, searched))) is not None:
            if rank >= 0:
                yield _answer(rank, bytes(held[: match.start()]), too_long=too_long)
            rank, too_long = int(match[1]), False
            del held[: match.end()]
            searched = 0
        searched = len(held) - _LONGEST_HEADING
        if len(held) > MOST_BYTES or rank < 0:
            too_long = too_long or rank >= 0
            del held[: max(0, searched)]
            searched = 0
    if rank >= 0:
        yield _answer(rank, bytes(held), too_long=too_long)


def _answer(rank: int, part: bytes, *, too_long: bool) -> Answer:
    if too_long:
        return Answer(rank, error=f"more than {MOST_BYTES >> 20} MiB")
    if failed := _STATUS.match(part):
        return Answer(rank, error=f"status {failed[1].decode()}")
    begin = _BODY.match(part)
    if begin is None or rank >= MOST_RANKS:
        return Answer(rank, error="no answer that is understood")
    return Answer(rank, part[begin.end() : part.rfind(_END)] if _END in part else part[begin.end() :])
