"""The board: what is posted is read, whole or not at all, by whoever is at the same call."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rankdrill.ledger import Board, BoardCall, make_board
from rankdrill.ledger import board as b
from rankdrill.ledger.board_format import HEADER_BYTES
from rankdrill.step import Contract, Site

SITE = Site("/somewhere/train.py", 41, "step", "all_gather_object")
SUM = Contract("all_reduce", "sum", dtypes=("float32",), sizes=(4,), shown="float32[4]")
SPLIT = Contract("all_to_all_single", dtypes=("float32",), sends=(1, 7), receives=(4, 4), shown="float32[8]")


@pytest.fixture
def boards(tmp_path: Path) -> Callable[[int], list[Board]]:
    def make(ranks: int) -> list[Board]:
        make_board(tmp_path / "board", ranks)
        return [Board(tmp_path / "board", rank) for rank in range(ranks)]

    return make


def test_what_is_posted_is_read(boards: Callable[[int], list[Board]]) -> None:
    one, other = boards(2)
    call = BoardCall(2**64 - 1, 3)
    assert one.post(call, SPLIT, SITE) is None, "the first"
    assert other.post(call, SPLIT, None) == 0
    mine, theirs = other.posted(call, (0, 1))
    assert (mine.rank, mine.op, mine.dtypes, mine.shown, mine.site) == (
        0,
        "all_to_all_single",
        "float32",
        "float32[8]",
        SITE,
    )
    assert (mine.each, mine.sends, mine.receives) == (None, (1, 7), (4, 4))
    assert theirs.site is None
    assert theirs.marks == mine.marks


def test_another_call_or_group_is_not_looked_at(boards: Callable[[int], list[Board]]) -> None:
    one, other = boards(2)
    one.post(BoardCall(5, 3), SUM, SITE)
    for call in (BoardCall(5, 4), BoardCall(6, 3), BoardCall(6, 2)):
        assert other.posted(call, (0,)) == []
        assert not other.differs(0, call, SPLIT, 1, 0)


@pytest.mark.parametrize(
    "contract",
    [
        Contract("broadcast", "sum", dtypes=("float32",), sizes=(4,)),
        Contract("all_reduce", "max", dtypes=("float32",), sizes=(4,)),
        Contract("all_reduce", "sum", 0, dtypes=("float32",), sizes=(4,)),
        Contract("all_reduce", "sum", dtypes=("int32",), sizes=(4,)),
        Contract("all_reduce", "sum", dtypes=("float32",), sizes=(5,)),
    ],
)
def test_any_argument_makes_a_difference(boards: Callable[[int], list[Board]], contract: Contract) -> None:
    one, other = boards(2)
    call = BoardCall(5, 0)
    one.post(call, SUM, SITE)
    assert other.differs(0, call, contract, 1, 0)
    assert not other.differs(0, call, SUM, 1, 0)


@pytest.mark.parametrize(
    ("mine", "fits"),
    [
        (Contract("all_to_all_single", dtypes=("float32",), sends=(4, 9), receives=(7, 9)), True),
        (Contract("all_to_all_single", dtypes=("float32",), sends=(4, 9), receives=(6, 9)), False),
        (Contract("all_to_all_single", dtypes=("float32",), sends=(5, 9), receives=(7, 9)), False),
        (Contract("all_to_all_single", dtypes=("float32",), each=4), False),
        (Contract("all_to_all_single", dtypes=("float32",)), True),
    ],
)
def test_what_is_moved_must_fit_by_twos(boards: Callable[[int], list[Board]], mine: Contract, fits: bool) -> None:
    one, other = boards(2)
    one.post(BoardCall(5, 0), SPLIT, SITE)
    assert other.differs(0, BoardCall(5, 0), mine, 1, 0) is not fits


def test_a_slot_cut_or_spoilt_anywhere_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "board"
    make_board(path, 2)
    call = BoardCall(5, 0)
    writer, reader = Board(path, 0), Board(path, 1)
    writer.post(call, SUM, SITE)
    before = path.read_bytes()
    writer.post(call, SPLIT, SITE)
    after = path.read_bytes()
    changed = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    fd = os.open(path, os.O_RDWR)
    # As a writer leaves it that died after so many bytes of the second post.
    for cut in random.Random(1).sample(range(changed[0] + 1, changed[-1]), 60):
        os.pwrite(fd, after[changed[0] : cut] + before[cut : changed[-1] + 1], changed[0])
        told = [post.op for post in reader.posted(call, (0,))]
        whole = after[changed[0] : changed[-1] + 1] == path.read_bytes()[changed[0] : changed[-1] + 1]
        assert told == (["all_to_all_single"] if whole else []), cut
    os.pwrite(fd, b"\xff" * (len(after) - HEADER_BYTES), HEADER_BYTES)
    os.close(fd)
    assert reader.posted(call, (0, 1)) == []
    assert not reader.differs(0, call, SUM, 1, 0)
    assert reader.post(call, SUM, SITE) is None


def test_who_is_far_ahead_is_no_longer_compared(boards: Callable[[int], list[Board]]) -> None:
    one, other = boards(2)
    for number in range(b.MOST_SLOTS + 1):
        one.post(BoardCall(5, number), SUM, SITE)
    assert other.posted(BoardCall(5, 0), (0,)) == []
    assert len(other.posted(BoardCall(5, 1), (0,))) == 1


def test_what_was_refused_is_taken_back(boards: Callable[[int], list[Board]]) -> None:
    one, other = boards(2)
    call = BoardCall(5, 0)
    one.post(call, SPLIT, SITE)
    one.retract(call)
    assert other.posted(call, (0,)) == []
    assert other.post(call, SUM, SITE) is None, "now the first"


def test_a_break_and_a_bend_hold_for_one_run(boards: Callable[[int], list[Board]]) -> None:
    one, other = boards(2)
    assert not other.bent
    assert other.broken is None
    one.bend()
    one.break_(BoardCall(5, 2))
    other.break_(BoardCall(5, 3))
    assert other.bent
    assert other.broken == b.BoardBreak(BoardCall(5, 2), 0), "the first stays"
    one.begin_run()
    assert [other.bent, other.broken] == [False, None]


def test_texts_are_cut_and_marks_are_not(boards: Callable[[int], list[Board]]) -> None:
    one, other = boards(2)
    long = Contract("x" * 500, "sum", dtypes=tuple(f"kind{n}" for n in range(900)), shown="é" * 900)
    site = Site("/very/long" * 90 + "/train.py", 7, "f" * 300, "v" * 300)
    one.post(BoardCall(5, 0), long, site)
    (post,) = other.posted(BoardCall(5, 0), (0,))
    assert post.site is not None
    assert post.site.file.endswith("/long/train.py")
    assert post.site.file.startswith("…")
    assert post.op.startswith("xxx")
    assert post.op.endswith("…")
    longer = Contract("x" * 501, "sum", dtypes=long.dtypes)
    assert other.differs(0, BoardCall(5, 0), longer, 1, 0)


@pytest.mark.parametrize("ranks", [2, 24, 1024])
def test_a_board_is_small(ranks: int, tmp_path: Path) -> None:
    make_board(tmp_path / "board", ranks)
    assert (tmp_path / "board").stat().st_size < (1 << 20) + ranks * (132 << 10)
    board = Board(tmp_path / "board", ranks - 1)
    splits = tuple(range(ranks))
    contract = Contract("all_to_all_single", sends=splits, receives=splits)
    board.post(BoardCall(5, 2**63), contract, SITE)
    (post,) = board.posted(BoardCall(5, 2**63), (ranks - 1,))
    assert post.sends == splits
