"""Two ends of a message compared: what differs, and which of them is the odd one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rankdrill.diagnosis import ContractWatch, Finding, FindingKind
from rankdrill.diagnosis.messages.contracts import break_in_message
from rankdrill.errors import ContractBroken
from rankdrill.ledger import Board, Half, MessageCall, make_board
from rankdrill.step import ANYBODY, OUTSIDE, Contract, Kind, Message, Site, Step


def contract(elements: int, dtype: str = "float32") -> Contract:
    return Contract("message", dtypes=(dtype,), sizes=(elements,), shown=f"{dtype}[{elements}]")


FOUR, FIVE, WHOLE = contract(4), contract(5), contract(4, "int64")
CALL = MessageCall(7, 0, 1, 2, 3)
LINE = Site("train.py", 41, "step")


@pytest.fixture
def find(tmp_path: Path) -> Callable[..., Finding | None]:
    """What is found where these ends have been posted: the sender's and the receiver's of `CALL`, and others."""
    make_board(tmp_path / "board", 4)
    boxes = [Board(tmp_path / "board", rank).mailbox for rank in range(4)]

    def look(sent: Contract, received: Contract, *others: tuple[MessageCall, Half, Contract, Site]) -> Finding | None:
        for call, half, what, site in (*others, (CALL, Half.SEND, sent, LINE), (CALL, Half.RECV, received, LINE)):
            boxes[call.of(half)].post(call, half, what, site)
        ends = [boxes[0].posted(CALL, half) for half in Half]
        assert ends[0] is not None
        assert ends[1] is not None
        return break_in_message(CALL, ends[0], ends[1], boxes[0].everything(CALL.group), "default")

    return look


Find = Callable[..., Finding | None]


def test_equal_ends_are_no_finding(find: Find) -> None:
    assert find(FOUR, FOUR) is None


def test_the_first_message_is_a_disagreement(find: Find) -> None:
    finding = find(FOUR, FIVE)
    assert finding is not None
    assert (finding.kind, finding.argument, finding.culprits, finding.ranks) == (FindingKind.SIZE, "size", (), (0, 1))
    assert finding.step == "message #3 from rank 0 to rank 1 (tag 2) on 'default'"
    assert finding.lines == (
        "size mismatch, nobody in the majority: rank 0 sends float32[4] to rank 1 (tag 2), at train.py:41 in step",
        "rank 1 expects float32[5] from rank 0 (tag 2), at train.py:41 in step",
    )


@pytest.mark.parametrize(
    ("before", "beside", "odd"),
    [
        pytest.param(FOUR, FOUR, 1, id="as before, and as others now"),
        pytest.param(FIVE, FIVE, 0, id="the sender is another one"),
        pytest.param(FOUR, FIVE, None, id="others have changed it, too"),
        pytest.param(WHOLE, FOUR, None, id="neither is as before"),
    ],
)
def test_tags_that_count_the_rounds(find: Find, before: Contract, beside: Contract, odd: int | None) -> None:
    past = replace(CALL, tag=CALL.tag - 1)
    third = replace(CALL, source=2, target=3)
    others = [
        (call, half, what, LINE) for call, what in ((past, before), (third, beside)) for half in (Half.SEND, Half.RECV)
    ]
    finding = find(FOUR, FIVE, *others)
    assert finding is not None
    assert finding.culprits == (() if odd is None else (odd,))


def test_a_dtype_comes_before_a_size(find: Find) -> None:
    finding = find(contract(5, "int64"), FOUR)
    assert finding is not None
    assert (finding.kind, finding.argument) == (FindingKind.DATATYPE, "dtype")


@pytest.mark.parametrize(("source", "target", "odd"), [(1, 2, 1), (2, 1, 1), (3, 0, 0), (2, 3, None)])
def test_who_does_not_fit_a_third_one_either_is_the_odd_one(
    find: Find, source: int, target: int, odd: int | None
) -> None:
    other = replace(CALL, source=source, target=target)
    finding = find(FOUR, FIVE, (other, Half.SEND, FIVE, LINE), (other, Half.RECV, FOUR, LINE))
    assert finding is not None
    assert finding.culprits == (() if odd is None else (odd,))


@pytest.mark.parametrize(("theirs", "odd"), [(FOUR, 1), (FIVE, 0), (WHOLE, None)])
def test_other_ranks_that_did_the_same_before_tell(find: Find, theirs: Contract, odd: int | None) -> None:
    other, turned = replace(CALL, source=2, target=3), contract(9)
    finding = find(
        FOUR,
        FIVE,
        (replace(CALL, number=2), Half.SEND, turned, LINE),
        (replace(CALL, number=2), Half.RECV, turned, LINE),
        (replace(other, number=2), Half.SEND, turned, LINE),
        (other, Half.SEND, theirs, LINE),
    )
    assert finding is not None
    assert finding.culprits == (() if odd is None else (odd,))
    assert finding.sides[0].ranks == (odd or 0,)


@pytest.mark.parametrize(("turned", "odd"), [(Half.SEND, 0), (Half.RECV, 1)])
def test_who_has_two_messages_in_another_order_than_a_third_one(find: Find, turned: Half, odd: int) -> None:
    """That one has exchanged both with the other end, and they fitted."""
    third = replace(CALL, source=2) if turned is Half.SEND else replace(CALL, target=2)
    first, then = (FIVE, FOUR) if turned is Half.SEND else (FOUR, FIVE)
    seen = [
        (replace(third, number=number), half, what, replace(LINE, line=50 + number))
        for number, what in ((3, first), (4, then))
        for half in Half
    ]
    finding = find(FOUR, FIVE, *seen)
    assert finding is not None
    assert finding.culprits == (odd,)
    assert find(FOUR, FIVE, *seen[:3]).culprits == ()  # type: ignore[union-attr]  # it had but the one of them


@pytest.mark.parametrize("before", [None, FIVE])
def test_other_ranks_with_a_size_of_their_own_do_not(find: Find, before: Contract | None) -> None:
    """In their first round, say, or where this pair had another size than they all along."""
    other = replace(CALL, source=2, target=3)
    seen = [(other, Half.SEND, FOUR, LINE)]
    if before is not None:
        past = contract(9)
        seen += [(replace(CALL, number=2), half, past, LINE) for half in Half]
        seen += [(replace(other, number=2), Half.SEND, before, LINE)]
    finding = find(FOUR, FIVE, *seen)
    assert finding is not None
    assert finding.culprits == ()


def test_a_dtype_is_one_for_all(find: Find) -> None:
    finding = find(FOUR, WHOLE, (replace(CALL, source=2, target=3), Half.SEND, FOUR, LINE))
    assert finding is not None
    assert finding.culprits == (1,)


def test_another_round_or_tag_of_others_does_not(find: Find) -> None:
    other = replace(CALL, source=2, target=3)
    finding = find(
        FOUR, FIVE, (replace(other, number=1), Half.SEND, FOUR, LINE), (replace(other, tag=9), Half.SEND, FOUR, LINE)
    )
    assert finding is not None
    assert finding.culprits == ()


@pytest.mark.parametrize(("before", "odd"), [(FOUR, 1), (FIVE, 0)])
def test_who_has_changed_since_the_message_before_is_the_odd_one(find: Find, before: Contract, odd: int) -> None:
    past, elsewhere = replace(CALL, number=2), replace(CALL, source=2, target=3, number=0)
    alone = find(FOUR, FIVE, (past, Half.SEND, before, LINE), (past, Half.RECV, before, LINE))
    assert alone is not None
    assert alone.culprits == (), "one against one, whatever was usual"
    beside = (elsewhere, Half.SEND, WHOLE, LINE), (elsewhere, Half.RECV, WHOLE, LINE)
    finding = find(FOUR, FIVE, (past, Half.SEND, before, LINE), (past, Half.RECV, before, LINE), *beside)
    assert finding is not None
    assert finding.culprits == (odd,)


def test_a_message_from_another_line_is_no_precedent(find: Find) -> None:
    """A header that was sent before its payload, say."""
    past, there = replace(CALL, number=2), replace(LINE, line=40)
    finding = find(FOUR, FIVE, (past, Half.SEND, FOUR, there), (past, Half.RECV, FOUR, there))
    assert finding is not None
    assert finding.culprits == ()


# ------------------------------------------------------------------------------------------------- on ranks


@pytest.fixture
def watches(tmp_path: Path) -> list[ContractWatch]:
    make_board(tmp_path / "board", 2)
    return [ContractWatch(Board(tmp_path / "board", rank), rank) for rank in range(2)]


def step(op: str, peer: int, what: Contract = FOUR, number: int = 0) -> Step:
    return Step(
        Kind.COLLECTIVE, op, "default", "told", digest=what.digest, contract=what, message=Message(peer, 0, number)
    )


def enter(watch: ContractWatch, me: int, what: Step) -> None:
    watch.enter(7, (0, 1), me, what)


def test_whoever_comes_second_raises(watches: list[ContractWatch]) -> None:
    enter(watches[0], 0, step("send", 1))
    with pytest.raises(ContractBroken, match=r"rank 0 sends float32\[4\] to rank 1"):
        enter(watches[1], 1, step("recv", 0, FIVE))


def test_what_fits_does_not(watches: list[ContractWatch]) -> None:
    for number in range(3):
        enter(watches[1], 1, step("recv", 0, FOUR, number))
        enter(watches[0], 0, step("send", 1, FOUR, number))
    enter(watches[0], 0, step("recv", ANYBODY, FIVE, -1))


def test_what_was_taken_back_is_not_compared(watches: list[ContractWatch]) -> None:
    refused = step("send", 1)
    enter(watches[0], 0, refused)
    watches[0].retract(7, refused)
    enter(watches[1], 1, step("recv", 0, FIVE))


def test_what_is_taken_back_while_the_other_looks_is_forgiven(watches: list[ContractWatch]) -> None:
    refused = step("send", 1)
    enter(watches[0], 0, refused)

    def retract() -> None:
        time.sleep(0.01)
        watches[0].retract(7, refused)

    thread = threading.Thread(target=retract)
    thread.start()
    enter(watches[1], 1, step("recv", 0, FIVE))
    thread.join()


def test_a_rank_that_the_group_does_not_have_is_told_at_once(watches: list[ContractWatch]) -> None:
    with pytest.raises(ContractBroken, match=r"unmatched message: rank 0 sends to a rank that 'default' does not have"):
        enter(watches[0], 0, step("send", OUTSIDE))


def test_what_the_plan_bent_is_not_compared(watches: list[ContractWatch]) -> None:
    enter(watches[0], 0, step("send", 1))
    watches[0].bend()
    enter(watches[1], 1, step("recv", 0, FIVE))
