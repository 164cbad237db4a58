"""The mailbox: what one end of a message posts the other finds, whole or not at all."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rankdrill.ledger import Board, BoardCall, Half, Mailbox, MessageCall, make_board
from rankdrill.ledger import mailbox as m
from rankdrill.step import Contract, Site

SITE = Site("/somewhere/train.py", 41, "step", "send_object_list")
FOUR = Contract("message", dtypes=("float32",), sizes=(4,), shown="float32[4]")
FIVE = Contract("message", dtypes=("float32",), sizes=(5,), shown="float32[5]")
CALL = MessageCall(2**64 - 2, 0, 1, 2**32 - 1, 3)


@pytest.fixture
def boxes(tmp_path: Path) -> Callable[[int], list[Mailbox]]:
    def make(ranks: int) -> list[Mailbox]:
        make_board(tmp_path / "board", ranks)
        return [Board(tmp_path / "board", rank).mailbox for rank in range(ranks)]

    return make


def test_what_one_end_posts_the_other_reads(boxes: Callable[[int], list[Mailbox]]) -> None:
    sender, receiver = boxes(2)
    assert receiver.posted(CALL, Half.SEND) is None
    sender.post(CALL, Half.SEND, FOUR, SITE)
    post = receiver.posted(CALL, Half.SEND)
    assert post is not None
    assert (post.rank, post.shown, post.site) == (0, "float32[4]", SITE)
    assert receiver.posted(CALL, Half.RECV) is None, "the other end is another"
    assert receiver.differs(CALL, Half.SEND, FIVE)
    assert not receiver.differs(CALL, Half.SEND, FOUR)


@pytest.mark.parametrize("field", ["group", "source", "target", "tag", "number"])
def test_another_message_is_not_taken_for_it(boxes: Callable[[int], list[Mailbox]], field: str) -> None:
    sender, receiver = boxes(2)
    sender.post(CALL, Half.SEND, FOUR, SITE)
    other = replace(CALL, **{field: {"source": 1, "target": 0}.get(field, 7)})
    assert receiver.posted(other, Half.SEND) is None
    assert not receiver.differs(other, Half.SEND, FIVE)


def test_what_was_refused_is_taken_back(boxes: Callable[[int], list[Mailbox]]) -> None:
    sender, receiver = boxes(2)
    sender.post(CALL, Half.SEND, FOUR, SITE)
    sender.retract(CALL, Half.SEND)
    assert receiver.posted(CALL, Half.SEND) is None
    sender.retract(CALL, Half.SEND)
    sender.post(CALL, Half.SEND, FIVE, SITE)
    assert receiver.differs(CALL, Half.SEND, FOUR)


def test_who_has_posted_nothing_is_not_known(tmp_path: Path) -> None:
    make_board(tmp_path / "board", 3)
    one, other, third = (Board(tmp_path / "board", rank) for rank in range(3))
    one.mailbox.post(CALL, Half.SEND, FOUR, SITE)
    other.post(BoardCall(5, 70), FIVE, SITE)
    assert [third.knows(rank) for rank in range(3)] == [True, True, False]


def test_the_newest_messages_of_a_rank_are_there(boxes: Callable[[int], list[Mailbox]]) -> None:
    sender, receiver = boxes(2)
    for number in range(m.ROOM + 1):
        sender.post(replace(CALL, number=number), Half.SEND, FOUR, SITE)
    assert receiver.posted(replace(CALL, number=0), Half.SEND) is None
    assert all(receiver.posted(replace(CALL, number=number), Half.SEND) for number in range(1, m.ROOM + 1))


def test_all_messages_of_a_group_are_seen(boxes: Callable[[int], list[Mailbox]]) -> None:
    one, two, three = boxes(3)
    ring = [replace(CALL, source=source, target=(source + 1) % 3) for source in range(3)]
    for box, call in zip((one, two, three), ring, strict=True):
        box.post(call, Half.SEND, FOUR, SITE)
        box.post(replace(call, tag=5), Half.SEND, FIVE, SITE)
    seen = list(one.everything(CALL.group))
    assert {(call, half, post.rank) for call, half, post in seen} == {
        (replace(call, tag=tag), Half.SEND, rank) for rank, call in enumerate(ring) for tag in (CALL.tag, 5)
    }
    assert list(one.everything(5)) == []


def test_a_post_cut_or_spoilt_anywhere_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "board"
    make_board(path, 2)
    writer, reader = Board(path, 0).mailbox, Board(path, 1).mailbox
    for number in range(m.ROOM):  # the next takes the place of the first
        writer.post(replace(CALL, number=number), Half.SEND, FOUR, SITE)
    before = path.read_bytes()
    last = replace(CALL, number=m.ROOM)
    writer.post(last, Half.SEND, FIVE, replace(SITE, line=7))
    after = path.read_bytes()
    changed = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    fd = os.open(path, os.O_RDWR)
    for cut in [*random.Random(1).sample(changed, min(20, len(changed))), changed[-1]]:
        os.pwrite(fd, after[changed[0] : cut] + before[cut : changed[-1] + 1], changed[0])
        told = reader.posted(last, Half.SEND)
        assert told is None or told.shown == "float32[5]", cut
        first = reader.posted(replace(CALL, number=0), Half.SEND)
        assert first is None or first.site == SITE, cut
    os.pwrite(fd, b"\xff" * (len(after) - 4096), 4096)
    os.close(fd)
    assert reader.posted(last, Half.SEND) is None
    assert list(reader.everything(CALL.group)) == []
    assert not reader.differs(last, Half.SEND, FOUR)


def test_a_rank_that_the_world_does_not_have_has_posted_nothing(boxes: Callable[[int], list[Mailbox]]) -> None:
    sender, _ = boxes(2)
    beyond = replace(CALL, target=9)
    assert sender.posted(beyond, Half.RECV) is None
    assert not sender.differs(beyond, Half.RECV, FOUR)
