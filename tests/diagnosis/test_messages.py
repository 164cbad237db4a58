"""Hangs in point to point, read from ledgers: what was left over, who has done otherwise, and who waits for whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from rankdrill.diagnosis import Finding, Position, waits
from rankdrill.diagnosis.messages.unmatched import unmatched_message, unreceived_message
from rankdrill.diagnosis.progress import position
from rankdrill.ledger import LedgerReader, LedgerView, LedgerWriter, State
from rankdrill.step import ANYBODY, NO_SEQUENCE, Kind, Message, Site, Step

Call: TypeAlias = tuple[str, int, int]  # op, peer, tag; of a collective the op alone counts


def send(peer: int, tag: int = 0) -> Call:
    return "send", peer, tag


def recv(peer: int, tag: int = 0) -> Call:
    return "recv", peer, tag


BARRIER: Call = "barrier", 0, 0


class Run:
    """Ranks that have made these calls, of which the last is under way where it is among `stuck`, and issued only
    where it is among `issued`; all other ranks have returned."""

    def __init__(
        self, folder: Path, calls: list[list[Call]], stuck: set[int], issued: set[tuple[int, int]], capacity: int
    ) -> None:
        self.views: dict[int, LedgerView] = {}
        for rank, made in enumerate(calls):
            path = folder / f"{len(list(folder.iterdir()))}"
            with LedgerWriter(path, rank=rank, world_size=len(calls), capacity=capacity) as ledger:
                numbers: Counter[Call] = Counter()
                for place, call in enumerate(made):
                    last = place == len(made) - 1
                    state = State.WAITING if last and rank in stuck else State.ENDED
                    state = State.ISSUED if (rank, place) in issued else state
                    ledger.mark(ledger.begin(_step(call, numbers[call], place)), state)
                    numbers[call] += 1
            self.views[rank] = LedgerReader(path).view()
        self.stuck = stuck

    def positions(self) -> list[Position]:
        return [position(view, ended=rank not in self.stuck) for rank, view in self.views.items()]


def _step(call: Call, number: int, place: int) -> Step:
    op, peer, tag = call
    site = Site("train.py", 10 + place, "step")
    if op == "barrier":
        return Step(Kind.COLLECTIVE, op, "default", sequence=number, site=site)
    message = Message(peer, tag, NO_SEQUENCE if peer == ANYBODY else number)
    return Step(Kind.COLLECTIVE, op, "default", f"float32[4] peer={peer} tag={tag}", site=site, message=message)


Find = Callable[..., Finding | None]


@pytest.fixture
def find(tmp_path: Path) -> Find:
    """What is found where ranks hang: `stuck` are those that do, by default all."""

    def look(
        *calls: list[Call], stuck: set[int] | None = None, issued: Collection[tuple[int, int]] = (), room: int = 64
    ) -> Finding | None:
        stuck = set(range(len(calls))) if stuck is None else stuck
        run = Run(tmp_path, list(calls), stuck, set(issued), room)
        return unmatched_message(waits(run.positions()), run.views, set(run.views) - stuck)

    return look


@pytest.fixture
def find_at_end(tmp_path: Path) -> Find:
    """What is found where all ranks returned; (rank, place) in `issued` was never waited for."""

    def look(*calls: list[Call], issued: Collection[tuple[int, int]] = (), room: int = 64) -> Finding | None:
        return unreceived_message(Run(tmp_path, list(calls), set(), set(issued), room).views)

    return look


def told(finding: Finding | None) -> tuple[str, str, tuple[int, ...]]:
    assert finding is not None
    return str(finding.kind), finding.argument, finding.culprits


# ---------------------------------------------------------------------------------------------------- hangs


def test_who_returned_without_sending(find: Find) -> None:
    finding = find([BARRIER], [BARRIER, recv(0)], stuck={1})
    assert told(finding) == ("unmatched message", "missing send", (0,))
    assert finding is not None
    assert finding.step == "message #0 from rank 0 to rank 1 (tag 0) on 'default'"
    assert finding.lines == (
        "unmatched message: rank 0 returned without sending to rank 1 (tag 0) after barrier #0 on 'default', "
        "at train.py:10 in step",
        "rank 1 waits for a message from rank 0 (tag 0), at train.py:11 in step",
    )


def test_who_returned_without_receiving(find: Find) -> None:
    assert told(find([send(1)], [], stuck={0})) == ("unmatched message", "missing recv", (1,))


def test_who_has_sent_before_left_it_out_there(find: Find) -> None:
    ring = [[send((rank + 1) % 3), recv((rank - 1) % 3)] * 2 for rank in range(3)]
    ring[0].pop(2)
    issued = {(rank, place) for rank in range(3) for place in (0, 2)} - {(0, 2)}
    finding = find(*ring, stuck={1}, issued=issued)
    assert told(finding) == ("unmatched message", "missing send", (0,))
    assert finding is not None
    assert [side.did for side in finding.sides] == [
        "leaves out a send to rank 1 (tag 0)",
        "returned without sending message #1 to rank 1 (tag 0) after recv from rank 2 (tag 0)",
        "waits for a message from rank 0 (tag 0)",
    ]


def test_one_more_of_many_is_as_likely_as_one_less(find: Find) -> None:
    finding = find([send(1)] * 3, [recv(0)] * 4, stuck={1})
    assert told(finding) == ("unmatched message", "missing send", ())
    assert finding is not None
    assert finding.ranks == (0, 1)
    assert [side.did for side in finding.sides] == [
        "waits for a message from rank 0 (tag 0)",
        "returned without sending message #3 to rank 1 (tag 0) after send to rank 1 (tag 0)",
    ]


def test_whom_two_wait_for_has_left_out_both(find: Find) -> None:
    """The middle of a pipeline has taken a microbatch less than both its neighbours have."""
    finding = find([send(1)] * 3, [recv(0), send(2)] * 2, [recv(1)] * 3, stuck={0, 2})
    assert told(finding) == ("unmatched message", "missing recv", (1,))


def test_what_comes_back_to_who_began_was_sent_too_far(find: Find) -> None:
    """All send on one line, and each but the first has received before."""
    first: list[Call] = [BARRIER, send(1)]
    finding = find(first, [recv(0), send(2)], [recv(1), send(0)], stuck={2})
    assert told(finding) == ("unmatched message", "extra send", (2,))
    assert finding is not None
    assert finding.sides[0].did == "sends float32[4] to rank 0 (tag 0)"


def test_who_began_on_a_line_of_its_own_may_have_had_to_receive_at_the_end(find: Find) -> None:
    finding = find([send(1)], [recv(0), send(2)], [recv(1), send(0)], stuck={2})
    assert told(finding) == ("unmatched message", "missing recv", ())
    assert finding is not None
    assert finding.ranks == (0, 2)


def test_who_can_itself_only_wait_will_not_send(find: Find) -> None:
    assert told(find([BARRIER], [recv(0)])) == ("unmatched message", "missing send", ())


def test_who_may_still_send_is_not_accused(tmp_path: Path) -> None:
    run = Run(tmp_path, [[], [recv(0)]], {1}, set(), 64)
    assert unmatched_message(waits(run.positions()), run.views, returned=set()) is None


def test_who_left_out_a_collective_explains_more(find: Find) -> None:
    assert find([], [BARRIER], [recv(0)], stuck={1, 2}) is None


def test_ranks_that_wait_in_collectives_alone_are_told_elsewhere(find: Find) -> None:
    assert find([BARRIER], [BARRIER, BARRIER]) is None


# -------------------------------------------------------------------------------- what was meant for each other


def test_another_tag(find: Find) -> None:
    finding = find([send(1, 1)], [recv(0, 2)])
    assert told(finding) == ("unmatched message", "tag", ())
    assert finding is not None
    assert finding.lines == (
        "unmatched message: rank 0 sends float32[4] to rank 1 (tag 1), at train.py:10 in step",
        "rank 1 waits for a message from rank 0 (tag 2), at train.py:10 in step",
    )


def test_another_tag_than_all_others(find: Find) -> None:
    finding = find([send(1, 7)], [recv(0, 8)], [send(3, 7)], [recv(2, 7)], stuck={0, 1})
    assert told(finding) == ("unmatched message", "tag", (1,))


def test_a_tag_that_is_not_counted_from_its_sender(find: Find) -> None:
    """All others take their own number for a tag: what the odd one takes is that of another rank."""
    senders = [send(0, 2)], [send(0, 2)], [send(0, 3)]
    finding = find([recv(1, 1)], *senders, stuck={0, 1, 2, 3})
    assert told(finding) == ("unmatched message", "tag", (1,))


def test_a_tag_of_which_nobody_knows_whether_it_is_counted(find: Find) -> None:
    """Of one other rank alone its own number is the tag that all are to have, or that each is to have its own."""
    finding = find([recv(1, 1)], [send(0, 2)], [send(0, 2)], stuck={0, 1, 2})
    assert told(finding) == ("unmatched message", "tag", ())
    assert finding is not None
    assert finding.ranks == (0, 1)


def test_another_tag_than_before(find: Find) -> None:
    """Of two ranks nobody can say which is right, whatever was usual; that others talk too is of some weight."""
    past = [send(1, 7)] * 2, [recv(0, 7)] * 2
    for tags, odd in (((8, 7), 0), ((7, 8), 1)):
        here = [*past[0], send(1, tags[0])], [*past[1], recv(0, tags[1])]
        assert told(find(*here)) == ("unmatched message", "tag", ())
        assert told(find(*here, [send(3, 0)], [recv(2, 0)], stuck={0, 1})) == ("unmatched message", "tag", (odd,))


def test_two_tags_in_another_order_than_before_are_a_deadlock(find: Find) -> None:
    """Each of them is right by itself; one has changed."""
    past = [send(1, 1), send(1, 2)] * 2, [recv(0, 1), recv(0, 2)] * 2
    finding = find([*past[0], send(1, 1)], [*past[1], recv(0, 2)])
    assert told(finding) == ("deadlock", "order", (1,))
    assert finding is not None
    assert finding.sides[0].ranks == (1,)


def test_a_tag_that_is_not_its_turn(find: Find) -> None:
    """Tags count the messages of all, the odd one's own earlier ones too: who has one too early is to blame."""
    in_turn = [send(3, tag) for tag in range(4)], [recv(2, tag) for tag in range(4)]
    jumps = find([send(1, 0), send(1, 2)], [recv(0, 0), recv(0, 1)], *map(list, in_turn), stuck={0, 1})
    assert told(jumps) == ("unmatched message", "tag", (0,))
    expects = find([send(1, 0), send(1, 1)], [recv(0, 0), recv(0, 2)], *map(list, in_turn), stuck={0, 1})
    assert told(expects) == ("unmatched message", "tag", (1,))


def test_of_two_that_have_counted_for_long_the_one_that_jumps_is_to_blame(find: Find) -> None:
    """Where others talk, too."""
    for turns, odd in ((3, (0,)), (2, ())):
        sent, expected = ([one(peer, tag) for tag in range(turns)] for one, peer in ((send, 1), (recv, 0)))
        here = [*sent, send(1, turns + 1)], [*expected, recv(0, turns)]
        assert told(find(*here)) == ("unmatched message", "tag", ())
        others = [send(3, 0)], [recv(2, 0)]
        assert told(find(*here, *others, stuck={0, 1})) == ("unmatched message", "tag", odd)


def test_another_tag_in_the_middle_of_a_count(find: Find) -> None:
    """Others leave tags out: nobody can say whether one came too early or the other too late."""
    here, there = ([one(peer, tag) for tag in (0, 1, 2, 4)] for one, peer in ((send, 3), (recv, 2)))
    finding = find([send(1, 0), send(1, 2)], [recv(0, 0), recv(0, 1)], here, there, stuck={0, 1})
    assert told(finding) == ("unmatched message", "tag", ())
    assert finding is not None
    assert finding.ranks == (0, 1)


def test_sent_to_one_that_expects_nothing(find: Find) -> None:
    """The sender alone explains both ends: whoever expects it would be wrong together with whoever does not."""
    assert told(find([send(2)], [recv(0)], [], stuck={0, 1})) == ("unmatched message", "peer", (0,))
    assert told(find([send(1)], [recv(2)], [], stuck={0, 1})) == ("unmatched message", "peer", (1,))


def test_the_other_way_around_a_ring(find: Find) -> None:
    ring = [[send((rank + 1) % 4), recv((rank - 1) % 4)] for rank in range(4)]
    ring[2] = [send(1), recv(1)]
    issued = {(rank, 0) for rank in range(4)}
    finding = find(*ring, stuck={3}, issued=issued)
    assert told(finding) == ("unmatched message", "peer", (2,))
    assert finding is not None
    assert [side.did for side in finding.sides] == [
        "sends float32[4] to rank 1 (tag 0)",
        "waits for a message from rank 2 (tag 0)",
    ]


def test_both_ways_around_a_ring_turned(find: Find) -> None:
    """What it expects itself from the wrong side is no pattern of the others."""
    ring = [[send((rank + 1) % 4), recv((rank - 1) % 4)] for rank in range(4)]
    ring[2] = [send(1), recv(3)]
    finding = find(*ring, stuck={2, 3}, issued={(rank, 0) for rank in range(4)})
    assert told(finding) == ("unmatched message", "peer", (2,))


def test_where_nothing_met_no_way_is_usual(find: Find) -> None:
    """The two in the middle receive from each other first; that those at the ends go one way is no pattern."""
    finding = find([send(1)], [recv(2)], [recv(1)], [recv(2)], stuck={0, 1, 2, 3})
    assert told(finding) == ("deadlock", "order", ())


def test_to_another_rank_than_all_others(find: Find) -> None:
    finding = find([recv(1), recv(2)], [send(0)], [send(3)], [send(0)], stuck={0, 2, 3})
    assert told(finding) == ("unmatched message", "peer", (2,))


def test_one_that_lacks_nothing_but_an_end_is_not_taken_for_misaddressed(find: Find) -> None:
    """A halo exchange in which rank 3 leaves out what it sends to the right: its left neighbour's is under way."""
    calls: list[list[Call]] = []
    for rank in range(4):
        left, right = (rank - 1) % 4, (rank + 1) % 4
        calls.append([send(left), send(right), recv(left), recv(right), BARRIER])
    calls[3] = [send(2), recv(2), recv(0), BARRIER]
    calls[0] = [send(3), send(1), recv(3)]
    issued = {(rank, place) for rank in range(4) for place in range(2)} - {(3, 1)}
    assert told(find(*calls, issued=issued)) == ("unmatched message", "missing send", (3,))


def test_who_named_another_peer_than_a_twin_that_did_as_much(find: Find) -> None:
    """Two pipelines of two: each second stage has received once, and each first one has sent once."""
    assert told(find([send(1)], [recv(0)], [send(1)], [recv(2)], stuck={2, 3})) == ("unmatched message", "peer", (2,))
    assert told(find([send(1)], [recv(0)], [send(3)], [recv(0)], stuck={2, 3})) == ("unmatched message", "peer", (3,))


def test_without_a_twin_nobody_says_who_named_the_wrong_peer(find: Find) -> None:
    """It may be about to send to the other as well, and its peer have left a receive out."""
    finding = find([send(1)], [recv(0)], [BARRIER, send(1)], [recv(2)], [BARRIER], stuck={2, 3})
    assert told(finding) == ("unmatched message", "missing recv", ())
    assert finding is not None
    assert finding.ranks == (1, 2)


# ---------------------------------------------------------------------------------------------------- counts


PIPELINE = """
def stage():
    for part in range(parts):
        if rank > 0:
            recv()
        if rank < last:
            send()
    if rank == 1:
        {behind}()
"""


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has all receives and all sends come from one line each of `PIPELINE`."""

    def from_lines(behind: str) -> None:
        source = tmp_path.with_suffix(f".{behind}.py")
        source.write_text(PIPELINE.format(behind=behind))
        lines = {"recv": 5, "send": 7}
        made = _step

        def step(call: Call, number: int, place: int) -> Step:
            return replace(made(call, number, place), site=Site(str(source), lines.get(call[0], 3), "stage"))

        monkeypatch.setattr("tests.diagnosis.test_messages._step", step)

    return from_lines


def pipeline(*parts: int) -> list[list[Call]]:
    """The calls of stages of so many parts each, as far as they come: none has more than the one before it sent."""
    sent = [min(parts[: rank + 1]) for rank in range(len(parts))]
    calls = []
    for rank, count in enumerate(sent):
        each = [recv(rank - 1)] * (rank > 0) + [send(rank + 1)] * (rank < len(parts) - 1)
        calls.append(each * count + [recv(rank - 1)] * (parts[rank] > count))
    return calls


def test_who_sends_fewer_than_all_behind_it_expect(find: Find, stages: Callable[[str], None]) -> None:
    stages("end")
    assert told(find(*pipeline(3, 4, 4), stuck={1, 2})) == ("unmatched message", "missing send", (0,))
    assert told(find(*pipeline(3, 4, 4, 4), stuck={1, 2, 3})) == ("unmatched message", "missing send", (0,))
    assert told(find(*pipeline(3, 3, 4, 4), stuck={2, 3}))[2] == (), "two against two"
    assert told(find(*pipeline(3, 3, 3, 4), stuck={3}))[2] == (3,)
    assert told(find(*pipeline(3, 4), stuck={1}))[2] == ()


def test_who_waits_behind_may_expect_what_another_line_sends(find: Find, stages: Callable[[str], None]) -> None:
    stages("send")
    assert told(find(*pipeline(3, 4, 4), stuck={1, 2}))[2] == ()


def test_one_receive_more_than_all_others(find: Find) -> None:
    ring = [[send((rank + 1) % 4), recv((rank - 1) % 4)] for rank in range(4)]
    ring[1].append(recv(0))
    assert told(find(*ring, stuck={1})) == ("unmatched message", "extra recv", (1,))
    ring[1].pop()
    ring[1].append(send(2))
    assert told(find(*ring, stuck={1})) == ("unmatched message", "extra send", (1,))


def test_more_messages_than_the_ledgers_hold(find: Find) -> None:
    rounds = 50
    ring = [[send((rank + 1) % 3), recv((rank - 1) % 3)] * rounds for rank in range(3)]
    ring[1].append(recv(0))
    finding = find(*ring, stuck={1}, room=16)
    assert told(finding) == ("unmatched message", "extra recv", (1,))
    assert finding is not None
    assert finding.step.startswith(f"message #{rounds} from rank 0")


def test_one_send_less_than_in_the_round_before(find: Find) -> None:
    """Of two ranks, and nothing but the past tells."""
    finding = find([recv(1), BARRIER, recv(1), BARRIER, recv(1)], [send(0), BARRIER, send(0), BARRIER, BARRIER])
    assert told(finding) == ("unmatched message", "missing send", (1,))
    finding = find([recv(1), BARRIER, recv(1), BARRIER, recv(1), recv(1)], [send(0), BARRIER] * 3)
    assert told(finding) == ("unmatched message", "extra recv", (0,))


# ---------------------------------------------------------------------------------------------------- cycles


@pytest.mark.parametrize("size", [2, 3, 5])
def test_everybody_receives_first(find: Find, size: int) -> None:
    finding = find(*([recv((rank - 1) % size)] for rank in range(size)))
    assert told(finding) == ("deadlock", "order", ())
    assert finding is not None
    around = [0, *range(size - 1, 0, -1), 0]
    chain = f"rank {around[0]} waits for rank {around[1]}"
    assert finding.step == chain + "".join(f", which waits for rank {rank}" for rank in around[2:])
    assert finding.lines[0] == f"deadlock: {finding.step}"
    assert finding.ranks == tuple(range(size))


def test_a_long_cycle_is_told_in_a_few_lines(find: Find) -> None:
    finding = find(*([send((rank + 1) % 40)] for rank in range(40)))
    assert finding is not None
    assert "which waits for … 32 more …, which waits for rank 0" in finding.step
    assert finding.lines[1:] == ("ranks 0-39 wait in send, each for the next, at train.py:10 in step",)


def test_two_that_receive_first_while_others_exchange_in_peace(find: Find) -> None:
    """What others have done more often says nothing of ranks that wait in the middle of it."""
    finding = find([recv(1)], [recv(0)], [send(3), recv(3)], [recv(2), send(2)], stuck={0, 1})
    assert told(finding) == ("deadlock", "order", ())
    assert finding is not None
    assert finding.ranks == (0, 1)


def test_that_all_others_send_to_one_rank_says_nothing_of_who_waits_elsewhere(find: Find) -> None:
    """A tree, of which rank 3 sends to the root and not to rank 1."""
    finding = find([recv(2), recv(1)], [recv(3)], [send(0)], [send(0)], stuck={0, 1, 3})
    assert told(finding) == ("deadlock", "order", ())


def test_a_reply_that_was_left_out_this_time(find: Find) -> None:
    asks, answers = [send(1), recv(1)], [recv(0), send(0)]
    finding = find([*asks * 3], [*answers * 2, recv(0), recv(0)])
    assert told(finding) == ("unmatched message", "missing send", (1,))
    assert finding is not None
    assert finding.sides[0].did == "leaves out a send to rank 0 (tag 0)"
    assert finding.sides[0].sites == (Site("train.py", 13, "step"),), "where it sent the last time"


def test_a_rhythm_of_which_nobody_knows_how_it_goes_on_accuses_nobody(find: Find) -> None:
    """Batches of receives, then of sends: after a receive either may come."""
    here, there = [recv(1)] * 3 + [send(1)] * 3, [send(0)] * 3 + [recv(0)] * 3
    finding = find([*here, recv(1), recv(1)], [*there, send(0), recv(0)])
    assert finding is not None
    assert 0 not in finding.culprits


def test_who_waits_behind_a_cycle_is_no_part_of_it(find: Find) -> None:
    finding = find([recv(1)], [recv(2)], [recv(1)])
    assert finding is not None
    assert finding.ranks == (1, 2)


def test_from_anybody_where_nobody_is_left(find: Find) -> None:
    finding = find([recv(ANYBODY)], [], stuck={0})
    assert told(finding) == ("unmatched message", "extra recv", ())
    assert "waits for a message from anybody (tag 0), and nobody is left who could send one" in str(finding)


# -------------------------------------------------------------------------------------------- at the end


def test_sent_and_never_received(find_at_end: Find) -> None:
    finding = find_at_end([send(1)], [BARRIER], issued={(0, 0)})
    assert told(finding) == ("unmatched message", "missing recv", ())
    assert finding is not None
    assert finding.ranks == (0, 1)


def test_all_received_is_none(find_at_end: Find) -> None:
    assert find_at_end([send(1), send(1)], [recv(0), recv(0)]) is None
    assert find_at_end([send(1)], [recv(0)], issued={(0, 0), (1, 0)}) is None


def test_what_somebody_may_have_taken_from_anybody_is_none(find_at_end: Find) -> None:
    assert find_at_end([send(1)], [recv(ANYBODY)], issued={(0, 0)}) is None
    assert find_at_end([send(1, 5)], [recv(ANYBODY)], issued={(0, 0)}) is not None


def test_what_a_ledger_lost_is_none(find_at_end: Find) -> None:
    assert find_at_end([send(1)], [recv(0), *[BARRIER] * 80]) is None
    assert find_at_end([*[BARRIER] * 80, *[send(1)] * 2], [*[BARRIER] * 80, recv(0)]) is not None
