"""Memory is filled whole and in order, however its pages are had."""

from __future__ import annotations

import os

import pytest

from rankdrill.gathers.encoding.coding import PICKLED
from rankdrill.gathers.encoding.wire import LONG_STREAM_BYTES, encode, split
from rankdrill.gathers.host import pages
from rankdrill.gathers.local import segment

NONCE = b"nonce---"
LARGE = pages._LARGE_BYTES + 4321


@pytest.mark.parametrize("nbytes", [0, 1, pages._LARGE_BYTES - 1, LARGE])
@pytest.mark.parametrize("huge", [True, False])
def test_the_parts_make_up_the_whole(monkeypatch: pytest.MonkeyPatch, nbytes: int, huge: bool) -> None:
    monkeypatch.setattr(pages, "_HUGE_PAGES", huge)
    block = pages.fresh(nbytes)
    filled = os.urandom(nbytes)
    done = 0
    for part in pages.parts_to_fill(block):
        part[:] = filled[done : done + part.nbytes]
        done += part.nbytes
    assert (done, bytes(block)) == (nbytes, filled)


@pytest.mark.parametrize("huge", [True, False])
def test_large_bytes_come_whole_from_a_segment(monkeypatch: pytest.MonkeyPatch, huge: bool) -> None:
    monkeypatch.setattr(pages, "_HUGE_PAGES", huge)
    value = {"head": 1, "body": os.urandom(LARGE), "more": [os.urandom(LARGE), "tail"]}
    payload = encode(value)
    made = segment.create(payload, NONCE)
    assert segment.load(os.getpid(), made, payload.nbytes, NONCE, PICKLED) == value
    os.close(made)


def test_the_bytes_of_a_long_stream_lie_where_copies_are_fast() -> None:
    value = b"x" * LONG_STREAM_BYTES
    frame = memoryview(encode(value).to_bytearray(NONCE))
    begin = bytes(frame[:4096]).index(b"x" * 100)
    assert begin >= 112
    assert split(frame, NONCE)[0].start < begin
    short = encode(b"y" * 2000)
    assert short.nbytes < 2100, "a small payload has no gap in it"


def test_whether_a_host_takes_free_pages_back(monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]) -> None:
    for said, reports in (("9\n", True), ("4294967295\n", False), ("-1\n", False), ("none\n", False)):
        parameter = os.path.join(tmp_path, "page_reporting_order")
        with open(parameter, "w") as file:
            file.write(said)
        monkeypatch.setattr(pages, "_REPORTED_ORDER", parameter)
        assert pages._reports_free_pages() is reports
    monkeypatch.setattr(pages, "_REPORTED_ORDER", os.path.join(tmp_path, "absent"))
    assert pages._reports_free_pages() is False
