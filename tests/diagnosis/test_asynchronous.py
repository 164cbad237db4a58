"""What each rank did wrong by itself becomes one finding, with the lines of all who did it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rankdrill.boundary.accesses import Use
from rankdrill.boundary.handles import Access
from rankdrill.boundary.work import NeverWaited
from rankdrill.diagnosis import Finding, FindingKind, Unwaited, Wait, each_for_itself, leak_on, unwaited
from rankdrill.diagnosis.asynchronous import MOST_TOLD, hazard_on, lost_message, stalled_by_loss
from rankdrill.ledger import LedgerReader, LedgerView, LedgerWriter, Record, State
from rankdrill.step import NO_SEQUENCE, Kind, Message, Site, Step


def at(line: int, via: str = "") -> Site:
    return Site("train.py", line, "step", via)


def reduction(number: int, line: int) -> Step:
    return Step(Kind.COLLECTIVE, "all_reduce", "default", "float32[2] sum", sequence=number, site=at(line))


def message(op: str, line: int, via: str) -> Step:
    return Step(Kind.COLLECTIVE, op, "default", "float32[2] peer=1 tag=0", sequence=NO_SEQUENCE, site=at(line, via))


def to(peer: int, op: str, line: int) -> Step:
    return Step(Kind.COLLECTIVE, op, "default", "float32[2]", site=at(line, op), message=Message(peer, 0))


READ = Access(Use.READ, "output", at(9))


def _unwaited(steps: Iterable[Step]) -> tuple[Unwaited, ...]:
    return unwaited((step, ()) for step in steps)


def test_calls_of_one_line_are_one() -> None:
    steps = [reduction(0, 7), reduction(1, 8), reduction(2, 7), reduction(3, 7)]
    assert _unwaited(steps) == (
        Unwaited("all_reduce #0 on 'default'", at(7), 2),
        Unwaited("all_reduce #1 on 'default'", at(8), 0),
    )
    assert len(_unwaited(reduction(number, number) for number in range(100))) == MOST_TOLD


def test_a_message_is_called_as_the_user_called_it() -> None:
    calls = [
        one.call
        for one in unwaited(
            (each, ()) for each in [message("send", 1, "isend"), message("recv", 2, "batch_isend_irecv")]
        )
    ]
    assert calls == ["isend on 'default'", "recv on 'default'"]


def test_nobody_left_anything() -> None:
    assert leak_on({}) is None
    assert leak_on({0: (), 1: ()}) is None


def test_ranks_that_left_the_same_are_one_side() -> None:
    left = _unwaited([reduction(3, 12)])
    finding = leak_on({0: left, 1: (), 2: left})
    assert finding is not None
    assert (finding.kind, finding.culprits) == (FindingKind.REQUEST_LEAK, (0, 2))
    assert finding.lines == (
        "request leak: ranks 0, 2 never waited for all_reduce #3 on 'default', at train.py:12 in step",
    )


def test_ranks_that_left_different_things_are_one_finding() -> None:
    finding = leak_on(
        {
            0: _unwaited([reduction(3, 12)]),
            1: _unwaited([reduction(4, 13), reduction(5, 13)]),
        }
    )
    assert finding is not None
    assert finding.culprits == (0, 1)
    assert finding.lines == (
        "request leak: rank 0 never waited for all_reduce #3 on 'default', at train.py:12 in step",
        "rank 1 never waited for all_reduce #4 on 'default', nor for 1 more issued there, at train.py:13 in step",
    )


def test_what_a_rank_left_at_two_lines_is_told_twice() -> None:
    sent = _unwaited([message("send", 4, "isend"), message("send", 7, "isend")])
    finding = leak_on({0: sent, 1: sent[:1]})
    assert finding is not None
    assert finding.lines == (
        "request leak: ranks 0, 1 never waited for isend on 'default', at train.py:4 in step",
        "rank 0 never waited for isend on 'default', at train.py:7 in step",
    )


def record(step: Step, error: str = "") -> Record:
    return Record(0, step, State.RAISED if error else State.WAITING, 0, 0, 0, None, error)


def test_whoever_waits_for_what_was_given_up_is_told_with_it(tmp_path: Path) -> None:
    with LedgerWriter(tmp_path / "0", rank=0, world_size=3) as ledger:
        for line, error in ((4, NeverWaited()), (5, ValueError())):
            ledger.fail(ledger.begin(message("send", line, "isend")), error)
        gave_up = LedgerReader(tmp_path / "0").view()
    ledgers = [gave_up, LedgerView(), LedgerView()]
    waits = {rank: Wait(rank, record(message("recv", 9, "recv")), (0,)) for rank in (1, 2)}
    finding = lost_message(waits, ledgers)
    assert finding is not None
    assert finding.culprits == (0,)
    assert finding.lines == (
        "request leak: rank 0 never waited for isend on 'default', at train.py:4 in step",
        "ranks 1, 2 waited for it in recv on 'default', at train.py:9 in step",
    )
    assert lost_message({1: Wait(1, record(message("send", 9, "send")), (0,))}, ledgers) is None, "sends meet receives"
    assert lost_message({1: Wait(1, record(reduction(0, 9)), (0,))}, ledgers) is None


def test_where_all_have_come_what_was_given_up_before_is_in_the_way(tmp_path: Path) -> None:
    with LedgerWriter(tmp_path / "0", rank=0, world_size=2) as ledger:
        ledger.fail(ledger.begin(message("recv", 4, "irecv")), NeverWaited())
        ledger.fail(ledger.begin(reduction(0, 5)), NeverWaited())
        gave_up = LedgerReader(tmp_path / "0").view()
    ledgers = [gave_up, LedgerView()]
    stuck = {rank: Wait(rank, record(reduction(1, 9)), ()) for rank in (0, 1)}
    finding = stalled_by_loss(stuck, ledgers)
    assert finding is not None
    assert finding.culprits == (0,)
    assert finding.lines == (
        "request leak: rank 0 never waited for irecv on 'default', at train.py:4 in step",
        "ranks 0, 1 are in all_reduce #1 on 'default', which does not end, at train.py:9 in step",
    )
    assert stalled_by_loss({}, ledgers) is None
    assert stalled_by_loss(stuck | {1: Wait(1, record(reduction(1, 9)), (0,))}, ledgers) is None, "one is awaited"
    assert stalled_by_loss(stuck, [ledgers[1]] * 2) is None, "a collective may be slow"


def test_an_early_access_is_told_with_the_call_that_it_disturbs() -> None:
    finding = each_for_itself([hazard_on(rank, reduction(3, 7), READ, lost=False) for rank in (2, 0)])
    assert finding is not None
    assert (finding.kind, finding.argument, finding.culprits) == (FindingKind.INPUT_HAZARD, "output", (0, 2))
    assert finding.lines == (
        "input hazard: ranks 0, 2 read the output of all_reduce #3 on 'default' before that was waited for, "
        "at train.py:9 in step",
        "ranks 0, 2 issued all_reduce #3 on 'default', at train.py:7 in step",
    )


def test_where_nobody_can_wait_any_more_the_leak_is_the_cause() -> None:
    finding = hazard_on(1, reduction(3, 7), READ, lost=True)
    assert finding.kind is FindingKind.REQUEST_LEAK
    assert [side.sites for side in finding.sides] == [(at(7),), (at(9),)]


def test_what_all_ranks_are_needed_for_is_left_to_others() -> None:
    assert each_for_itself([Finding(FindingKind.ROOT, "broadcast #0 on 'default'", "root", ())]) is None


def test_what_one_of_several_is_to_wait_for() -> None:
    mine = unwaited([(reduction(3, 12), (0, 2))])
    assert leak_on({0: mine, 1: (), 2: ()}) is None
    finding = leak_on({0: mine, 1: (), 2: mine})
    assert finding is not None
    assert finding.culprits == (0, 2)
    assert leak_on({0: mine, 1: ()}) is None  # the other has come to no end, and says nothing


def test_of_two_that_are_at_the_two_ends_of_a_message_one_gave_up_an_earlier_one(tmp_path: Path) -> None:
    with LedgerWriter(tmp_path / "0", rank=0, world_size=2) as ledger:
        ledger.fail(ledger.begin(to(1, "send", 4)), NeverWaited())
        gave_up = LedgerReader(tmp_path / "0").view()
    ledgers = [gave_up, LedgerView()]
    sender, receiver = Wait(0, record(to(1, "send", 6)), (1,)), Wait(1, record(to(0, "recv", 9)), ())
    finding = stalled_by_loss({0: sender, 1: receiver}, ledgers)
    assert finding is not None
    assert (finding.kind, finding.culprits) == (FindingKind.REQUEST_LEAK, (0,))
    assert finding.lines == (
        "request leak: rank 0 never waited for send on 'default', at train.py:4 in step",
        "rank 0 waits for rank 1 to receive float32[2] (tag 0), in vain since then, at train.py:6 in step",
    )
    assert stalled_by_loss({0: sender}, ledgers) is None, "nobody receives"
    assert stalled_by_loss({0: sender, 1: Wait(1, record(to(0, "send", 9)), ())}, ledgers) is None
    assert stalled_by_loss({0: sender, 1: receiver}, [LedgerView()] * 2) is None, "nothing was given up"
    backward = {0: Wait(0, record(to(1, "recv", 6)), (1,)), 1: Wait(1, record(to(0, "send", 9)), ())}
    assert stalled_by_loss(backward, ledgers) is None, "what was given up went the other way"
