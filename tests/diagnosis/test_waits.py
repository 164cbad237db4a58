"""The wait-for graph: by hand, and against a simulation of random programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from rankdrill.boundary.work import NeverWaited
from rankdrill.diagnosis import Position, Progress, Wait, doomed, name_ranks, waits
from rankdrill.diagnosis.progress import counted_by, position
from rankdrill.ledger import ON_DEVICE, LedgerReader, LedgerWriter, Record, State
from rankdrill.step import ANYBODY, NEVER_WAITED, NEW_GROUP, NO_SEQUENCE, Kind, Message, Step


def step(sequence: int, group: str = "default", op: str = "barrier", fingerprint: str = "") -> Step:
    return Step(Kind.COLLECTIVE, op, group, fingerprint, sequence=sequence)


def record(what: Step, state: State = State.WAITING) -> Record:
    return Record(0, what, state, 0, 0, 0, None, "")


def running(**reached: int) -> Position:
    return Position(ended=False, reached=reached)


def ended(**reached: int) -> Position:
    return Position(ended=True, reached=reached)


def waiting(sequence: int, group: str = "default", *members: int, **reached: int) -> Position:
    groups = {group: members} if members else {}
    return Position(False, record(step(sequence, group)), {group: sequence + 1, **reached}, groups)


# --------------------------------------------------------------------------------------- by hand


def test_nobody_waits() -> None:
    assert waits([running(), ended()]) == {}
    assert doomed([running(), ended()]) == {}


def test_who_has_ended_with_an_error_out_of_a_call_is_in_it_no_more() -> None:
    failed = Position(ended=True, reached={"default": 1}, failed={"default": 0})
    assert waits([waiting(0), failed])[0].missing == (1,)
    assert list(doomed([waiting(0), failed])) == [0]
    assert doomed([waiting(0), replace(failed, ended=False)]) == {}, "it may be called again"
    assert doomed([waiting(0), replace(failed, failed={"default": 1})]) == {}


def test_waiting_for_one_that_runs_is_no_hang() -> None:
    positions = [waiting(0), running()]
    assert waits(positions)[0].missing == (1,)
    assert doomed(positions) == {}


def test_waiting_for_one_that_ended_is() -> None:
    assert list(doomed([waiting(0), ended()])) == [0]


def test_what_the_ended_had_reached_is_not_missed() -> None:
    assert doomed([waiting(0), ended(default=1)]) == {}
    assert list(doomed([waiting(1), ended(default=1)])) == [0]


def test_groups_that_are_made_have_numbers_of_their_own() -> None:
    """Rank 0 is about to leave the making of group #0; rank 1, no member, is in collective #0 and waits for it."""
    making = Step(Kind.GROUP, NEW_GROUP, "default", "ranks=0,2", sequence=0)
    made = {counted_by(making): 1}
    positions = [
        Position(False, record(making), made),
        Position(False, record(step(0, op="all_reduce")), {"default": 1, **made}),
        Position(False, record(step(0, op="all_reduce")), {"default": 1, **made}),
    ]
    assert doomed(positions) == {}
    apart = [waiting(0), Position(False, record(step(0, op="all_reduce")), {"default": 1})]
    assert list(doomed(apart)) == [0, 1], "collectives of one number do not meet"


def test_a_chain_of_waits_behind_an_ended_one() -> None:
    positions = [waiting(0, "a", 0, 1), waiting(0, "b", 1, 2), waiting(0, "c", 2, 3), ended()]
    found = doomed(positions)
    assert {rank: wait.missing for rank, wait in found.items()} == {0: (1,), 1: (2,), 2: (3,)}
    positions[3] = running()
    assert doomed(positions) == {}


def test_a_cycle_of_waits() -> None:
    positions = [waiting(0, "a", 0, 1), waiting(0, "b", 0, 1), running()]
    assert sorted(doomed(positions)) == [0, 1]


def test_an_earlier_call_of_the_same_group_is_behind() -> None:
    """Ranks that issued different numbers of collectives meet in different calls."""
    assert list(doomed([waiting(3), waiting(3), ended(default=3)])) == [0, 1]


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ((), "is in collective.barrier #0 on 'default', which every rank has reached"),
        ((2,), "waits in collective.barrier #0 on 'default' for rank 2"),
        ((1, 3), "waits in collective.barrier #0 on 'default' for ranks 1, 3"),
    ],
)
def test_a_wait_reads_aloud(missing: tuple[int, ...], text: str) -> None:
    assert str(Wait(0, record(step(0)), missing)) == text


# --------------------------------------------------------------------------------------- messages


def message(op: str, peer: int, tag: int = 0, number: int = 0) -> Step:
    return Step(Kind.COLLECTIVE, op, "default", f"float32[1] peer={peer} tag={tag}", message=Message(peer, tag, number))


def from_anybody(tag: int = 0) -> Step:
    return message("recv", ANYBODY, tag, NO_SEQUENCE)


def at_message(op: str, peer: int, tag: int = 0, number: int = 0) -> Position:
    sent = {(op, "default", peer, tag): number + 1}
    return Position(False, record(message(op, peer, tag, number)), messages=sent)


def at_any(tag: int = 0, pending: int = 1) -> Position:
    return Position(False, record(from_anybody(tag)), unknown={("default", tag): pending})


def test_a_receive_from_one_that_ended() -> None:
    assert doomed([at_message("recv", 1), ended()])[0].missing == (1,)


def test_a_receive_from_anybody_takes_any_one_of_them() -> None:
    assert doomed([at_any(), ended(), running()]) == {}
    wait = doomed([at_any(), ended(), ended()])[0]
    assert (wait.missing, wait.anyone) == ((1, 2), True)
    assert "waits in collective.recv on 'default' (float32[1] peer=-2 tag=0) for one of ranks 1, 2" in str(wait)
    # Who could still send waits for the one that waits.
    assert sorted(doomed([at_any(), at_message("recv", 0)])) == [0, 1]


def test_a_receive_from_anybody_to_whom_somebody_has_sent_comes() -> None:
    sender = Position(True, messages={("send", "default", 0, 0): 1})
    assert doomed([at_any(), sender]) == {}
    assert list(doomed([at_any(tag=5), sender])) == [0]
    taken = Position(
        False, record(from_anybody()), messages={("recv", "default", 1, 0): 1}, unknown={("default", 0): 1}
    )
    assert list(doomed([taken, sender])) == [0]


def test_of_several_receives_from_anybody_nothing_is_certain() -> None:
    assert doomed([at_any(pending=2), ended()]) == {}


def test_two_that_receive_from_each_other() -> None:
    assert sorted(doomed([at_message("recv", 1), at_message("recv", 0)])) == [0, 1]


def test_a_receive_whose_send_has_begun_comes() -> None:
    sender = Position(False, record(step(0)), {"default": 1}, messages={("send", "default", 0, 0): 1})
    assert doomed([at_message("recv", 1), sender]) == {}
    assert sorted(doomed([at_message("recv", 1, number=1), sender])) == [0, 1]
    other_tag = Position(False, record(step(0)), {"default": 1}, messages={("send", "default", 0, 5): 1})
    assert sorted(doomed([at_message("recv", 1), other_tag])) == [0, 1]


def test_a_send_that_anybody_was_ready_for_comes() -> None:
    receiver = Position(True, unknown={("default", 0): 1})
    assert doomed([at_message("send", 1), receiver]) == {}
    assert list(doomed([at_message("send", 1, tag=5), receiver])) == [0]
    assert list(doomed([at_message("send", 1), ended()])) == [0]


def test_a_peer_that_the_world_does_not_have_accuses_nobody() -> None:
    """Ledgers that are damaged, or were recorded by somebody else."""
    assert waits([at_message("recv", 2), ended()])[0].missing == ()
    assert waits([at_message("recv", -3), ended()])[0].missing == ()


def test_a_message_of_which_nobody_knows_which_it_is_accuses_nobody() -> None:
    here = Position(False, record(message("recv", 1, number=NO_SEQUENCE)))
    assert waits([here, ended()])[0].missing == ()


@pytest.mark.parametrize("gone", [True, False])
def test_messages_that_a_ledger_lost_accuse_only_who_has_ended(gone: bool) -> None:
    assert waits([at_message("recv", 1), Position(gone, lost=True)])[0].missing == ((1,) if gone else ())
    before = Position(gone, messages={("send", "default", 0, 0): 7}, lost=True)
    assert waits([at_message("recv", 1, number=6), before])[0].missing == ()
    assert waits([at_message("recv", 1, number=7), before])[0].missing == (1,), "the newest was not lost"


def test_messages_are_counted_by_their_numbers(tmp_path: Path) -> None:
    with LedgerWriter(tmp_path / "ledger", rank=0, world_size=1, capacity=4) as ledger:
        for number in range(7):  # more than the ledger holds
            ledger.mark(ledger.begin(message("recv", 3, 7, number)), State.ENDED)
        ledger.mark(ledger.begin(message("recv", 4)), State.ENDED)
    read = position(LedgerReader(tmp_path / "ledger").view(), ended=False)
    assert read.messages == {("recv", "default", 3, 7): 7, ("recv", "default", 4, 0): 1}
    assert read.lost
    assert read.reached == {}


def test_who_was_received_from_is_counted_once_it_is_known(tmp_path: Path) -> None:
    progress = Progress()
    with LedgerWriter(tmp_path / "ledger", rank=0, world_size=2) as ledger:
        reader = LedgerReader(tmp_path / "ledger")
        index = ledger.begin(from_anybody(5))
        progress.take(reader.view(progress.next))
        assert progress.position(ended=False).unknown == {("default", 5): 1}
        ledger.tell_message(index, Message(1, 5, 0))
        ledger.mark(index, State.ENDED)
        progress.take(reader.view(progress.next))
        found = progress.position(ended=False)
        assert (found.unknown, found.messages) == ({}, {("recv", "default", 1, 5): 1})
        reader.close()


def test_what_was_given_up_is_not_counted(tmp_path: Path) -> None:
    progress = Progress()
    with LedgerWriter(tmp_path / "ledger", rank=0, world_size=2) as ledger:
        reader = LedgerReader(tmp_path / "ledger")
        ledger.mark(ledger.begin(message("send", 1)), State.ENDED)
        refused = ledger.begin(message("send", 1, number=1))
        progress.take(reader.view(progress.next))
        assert progress.position(ended=False).messages == {("send", "default", 1, 0): 2}
        ledger.fail(refused, ValueError())
        progress.take(reader.view(progress.next))
        assert progress.position(ended=False).messages == {("send", "default", 1, 0): 1}
        ledger.fail(ledger.begin(from_anybody()), ValueError())
        again = ledger.begin(message("send", 1, number=1))
        progress.take(reader.view(progress.next))
        assert progress.position(ended=False).messages == {("send", "default", 1, 0): 2}
        assert progress.position(ended=False).unknown == {}
        ledger.mark(again, State.ENDED)
        reader.close()


def test_what_was_received_in_earlier_runs_says_nothing_of_this_one(tmp_path: Path) -> None:
    with LedgerWriter(tmp_path / "ledger", rank=0, world_size=2, capacity=4) as ledger:
        for _ in range(9):
            ledger.mark(ledger.begin(from_anybody()), State.ENDED)
        ledger.begin(message("recv", 1))
    reader = LedgerReader(tmp_path / "ledger")
    progress = Progress(start=9)
    progress.take(reader.view())
    found = progress.position(ended=False)
    assert (found.unknown, found.lost, found.whole) == ({}, False, False)
    reader.close()


def test_a_wait_says_who_waits_where_and_for_whom() -> None:
    here, there = waiting(0), at_message("send", 0)
    assert here.at is not None
    assert there.at is not None
    assert waits([here, there]) == {0: Wait(0, here.at, (1,)), 1: Wait(1, there.at, (0,))}


def test_members_beyond_the_world_are_not_waited_for() -> None:
    assert waits([waiting(0, "odd", 0, 1, 2), ended()])[0].missing == (1,)


# ---------------------------------------------------------------------------------------- ledgers


def test_positions_are_read_from_ledgers(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with LedgerWriter(path, rank=0, world_size=3) as ledger:
        ledger.introduce_group("pair", (0, 2))
        ledger.mark(ledger.begin(step(0, "pair")), State.ENDED)
        ledger.mark(ledger.begin(Step(Kind.FILE, "open", "/x")), State.ENDED)
        first = ledger.begin(step(1, "pair"))
        ledger.mark(first, State.WAITING)
        ledger.mark(ledger.begin(step(2, "pair")), State.ISSUED)
        read = position(LedgerReader(path).view(), ended=False)
    assert read.at is not None
    assert read.at.index == first, "a newer call that nobody waits for does not hide it"
    assert read.reached == {"pair": 3}
    assert read.groups == {"pair": (0, 2)}
    assert position(LedgerReader(path).view(), ended=True).at is None


def test_no_group_is_believed_to_have_more_members_than_the_world(tmp_path: Path) -> None:
    """A damaged ledger may speak of more than memory holds."""
    path = tmp_path / "ledger"
    with LedgerWriter(path, rank=0, world_size=3) as ledger:
        ledger.introduce_group("huge", range(100))
    progress = Progress(ranks=3)
    progress.take(LedgerReader(path).view())
    assert progress.position(ended=False).groups == {"huge": (0, 1, 2)}


def test_a_message_that_was_given_up_is_waited_for_in_vain(tmp_path: Path) -> None:
    """Also one that a look has counted already, and once, however often it is looked at."""
    assert NeverWaited.__name__ == NEVER_WAITED
    path = tmp_path / "ledger"
    counts = []
    with LedgerWriter(path, rank=1, world_size=2) as ledger:
        reader, progress = LedgerReader(path), Progress()
        open_still = ledger.begin(step(0))
        for turn in range(2):
            sent = ledger.begin(message("send", 0, number=turn))
            ledger.mark(sent, State.ISSUED)
            progress.take(reader.view(progress.next))
        ledger.fail(sent, NeverWaited())
        for _ in range(3):
            progress.take(reader.view(progress.next))
            counts.append(progress.position(ended=True).messages[("send", "default", 0, 0)])
        ledger.mark(open_still, State.ENDED)
        assert counts == [1, 1, 1]
        assert progress.position(ended=True).gave_up
        assert not Progress().position(ended=True).gave_up
        assert position(reader.view(), ended=True).messages == {("send", "default", 0, 0): 1}
    assert doomed([at_message("recv", 1), progress.position(ended=True)]) == {}
    assert list(doomed([at_message("recv", 1), Position(True, messages={("send", "default", 0, 0): 0})])) == [0]


def test_who_is_in_a_group_is_known_however_often_the_ring_wraps(tmp_path: Path) -> None:
    """Also where nobody looked before."""
    path = tmp_path / "ledger"
    with LedgerWriter(path, rank=0, world_size=3, capacity=8) as ledger:
        ledger.introduce_group("pair", (0, 2))
        for sequence in range(800):
            ledger.mark(ledger.begin(step(sequence, "pair")), State.WAITING if sequence == 799 else State.ENDED)
    here = position(LedgerReader(path).view(), ended=False)
    assert not here.whole
    assert here.groups == {"pair": (0, 2)}
    assert waits([here, ended(), running(pair=799)])[0].missing == (2,)


def test_a_group_of_an_earlier_ones_name_counts_anew_on_a_device(tmp_path: Path) -> None:
    """From where it was written down, whatever has been looked at meanwhile."""
    path = tmp_path / "ledger"
    with LedgerWriter(path, rank=0, world_size=4) as ledger:
        reader, progress = LedgerReader(path), Progress()
        for ranks in ((0, 1), (0, 2, 3)):
            ledger.introduce_group("1", ranks, ON_DEVICE)
            for sequence in range(len(ranks)):
                ledger.mark(ledger.begin(step(sequence, "1")), State.ENDED)
                progress.take(reader.view(progress.next, groups_since=0))
        assert position(reader.view(), ended=False).reached == {"1": 3}
        assert progress.position(ended=False).reached == {"1": 3}
        ledger.introduce_group("1", (0, 1), ON_DEVICE)
        progress.take(reader.view(progress.next, groups_since=0))
        assert progress.position(ended=False).reached == {}
        reader.close()


def test_how_far_a_rank_has_come_is_the_furthest_it_was(tmp_path: Path) -> None:
    """A number that is given back is given again: the newest call need not have the highest."""
    with LedgerWriter(tmp_path / "ledger", rank=0, world_size=1) as ledger:
        for sequence in (0, 3, 1):
            ledger.begin(step(sequence))
    assert position(LedgerReader(tmp_path / "ledger").view(), ended=False).reached == {"default": 4}


def test_a_rank_that_has_done_nothing_is_nowhere() -> None:
    assert Progress().position(ended=False, stuck=True) == Position(False)


def test_what_is_over_is_not_looked_at_again(tmp_path: Path) -> None:
    progress = Progress()
    with LedgerWriter(tmp_path / "ledger", rank=0, world_size=1) as ledger:
        reader = LedgerReader(tmp_path / "ledger")
        ledger.mark(ledger.begin(step(0)), State.ENDED)
        ledger.fail(ledger.begin(step(1)), KeyError())
        under_way = ledger.begin(step(2))
        ledger.mark(ledger.begin(step(3)), State.ENDED)
        progress.take(reader.view(progress.next))
        assert progress.next == under_way
        ledger.mark(under_way, State.ENDED)
        progress.take(reader.view(progress.next))
        assert progress.next == 4
        reader.close()


def test_a_rank_inside_another_step_within_a_collective_runs(tmp_path: Path) -> None:
    with LedgerWriter(tmp_path / "ledger", rank=0, world_size=1) as ledger:
        ledger.mark(ledger.begin(step(0)), State.WAITING)
        inner = ledger.begin(Step(Kind.FILE, "open", "/x"))
        assert position(LedgerReader(tmp_path / "ledger").view(), ended=False).at is None
        ledger.mark(inner, State.ENDED)
        assert position(LedgerReader(tmp_path / "ledger").view(), ended=False).at is not None


def test_a_rank_inside_another_step_runs(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with LedgerWriter(path, rank=0, world_size=1) as ledger:
        ledger.begin(Step(Kind.FILE, "open", "/x"))
    assert position(LedgerReader(path).view(), ended=False).at is None


def test_what_one_that_is_stuck_outside_any_step_waits_for(tmp_path: Path) -> None:
    """The newest collective, unless it is over: then what it waits for is not known."""
    path = tmp_path / "ledger"
    progress = Progress()
    with LedgerWriter(path, rank=0, world_size=1) as ledger:
        reader = LedgerReader(path)
        issued = ledger.begin(step(0))
        ledger.mark(issued, State.ISSUED)
        progress.take(reader.view(progress.next))
        found = progress.position(ended=False, stuck=True).at
        assert found is not None
        assert found.index == issued
        assert progress.position(ended=False).at is None
        ledger.mark(issued, State.ENDED)
        progress.take(reader.view(progress.next))
        assert progress.position(ended=False, stuck=True).at is None
        reader.close()


def test_a_collective_that_was_skipped_is_not_reached(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with LedgerWriter(path, rank=0, world_size=1) as ledger:
        ledger.mark(ledger.begin(step(0)), State.ENDED)
        skipped = ledger.begin(step(1))
        ledger.strike(skipped, 0)
        ledger.mark(skipped, State.ENDED)
    view = LedgerReader(path).view()
    assert position(view, ended=True).reached == {"default": 2}
    assert position(view, ended=True, entered=lambda record: record.fault is None).reached == {"default": 1}


@given(st.lists(st.tuples(st.sampled_from(["begin", "wait", "end", "look"]), st.integers(0, 5)), max_size=40))
def test_looking_often_sees_what_looking_once_does(
    tmp_path_factory: pytest.TempPathFactory, script: list[tuple[str, int]]
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger"
    progress, sequence = Progress(), 0
    over: set[int] = set()
    with LedgerWriter(path, rank=0, world_size=1, capacity=64) as ledger:
        reader = LedgerReader(path)
        for what, which in [*script, ("look", 0)]:
            match what:
                case "begin":
                    which = sequence
                    ledger.begin(step(sequence) if sequence % 3 else message("send", 1, number=sequence // 3))
                    sequence += 1
                case "wait" if which < sequence and which not in over:  # nobody waits for what is over
                    ledger.mark(which, State.WAITING)
                case "end" if which < sequence:
                    ledger.mark(which, State.ENDED)
                    over.add(which)
                case "look":
                    progress.take(reader.view(progress.next))
        assert progress.position(ended=False) == position(reader.view(), ended=False)
        reader.close()


def test_what_was_lost_between_two_looks_stays_lost(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    progress, whole = Progress(), []
    with LedgerWriter(path, rank=0, world_size=1, capacity=8) as ledger:
        reader = LedgerReader(path)
        for count in (3, 20, 3):
            for _ in range(count):
                ledger.mark(ledger.begin(step(0)), State.ENDED)
            progress.take(reader.view(progress.next))
            whole.append(progress.position(ended=False).whole)
        reader.close()
    assert whole == [True, False, False]


def test_a_ledger_that_lost_its_beginning_accuses_nobody(tmp_path: Path) -> None:
    """Where it is unknown which ranks a group has, only those that were seen using it are its members."""
    path = tmp_path / "ledger"
    with LedgerWriter(path, rank=0, world_size=3, capacity=8) as ledger:
        for sequence in range(20):
            ledger.mark(ledger.begin(step(sequence, "pair")), State.WAITING if sequence == 19 else State.ENDED)
    here = position(LedgerReader(path).view(), ended=False)
    assert not here.whole
    assert waits([here, running(pair=19), ended()])[0].missing == (1,)
    assert waits([here, Position(False, None, {}, {"pair": (0, 1)}), ended()])[0].missing == (1,)


# --------------------------------------------------------------------- against a simulation of programs


@dataclass
class Program:
    """What each rank does, in order: the groups whose collective it enters; then it returns, or runs on for ever."""

    calls: list[list[str]]
    groups: dict[str, tuple[int, ...]]
    returns: list[bool]
    entered: list[dict[str, int]] = field(default_factory=list)
    at: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.entered = [dict.fromkeys(self.groups, 0) for _ in self.calls]
        self.at = [0] * len(self.calls)
        self.inside = [False] * len(self.calls)

    def enter(self, rank: int) -> bool:
        """Let `rank` enter its next collective, if it is in none."""
        if self.inside[rank] or self.at[rank] == len(self.calls[rank]):
            return False
        self.entered[rank][self.calls[rank][self.at[rank]]] += 1
        self.inside[rank] = True
        return True

    def leave(self, rank: int) -> bool:
        """Let `rank` leave its collective, if all members have come as far."""
        if not self.inside[rank]:
            return False
        group = self.calls[rank][self.at[rank]]
        mine = self.entered[rank][group]
        if any(self.entered[member][group] < mine for member in self.groups[group]):
            return False
        self.at[rank] += 1
        self.inside[rank] = False
        return True

    def move(self, rank: int) -> bool:
        return self.enter(rank) or self.leave(rank)

    def position(self, rank: int) -> Position:
        done = self.at[rank] == len(self.calls[rank]) and not self.inside[rank]
        at = None
        if self.inside[rank]:
            group = self.calls[rank][self.at[rank]]
            at = record(step(self.entered[rank][group] - 1, group))
        known = {name: ranks for name, ranks in self.groups.items() if self.entered[rank][name]}
        return Position(done and self.returns[rank], at, dict(self.entered[rank]), known)

    def positions(self) -> list[Position]:
        return [self.position(rank) for rank in range(len(self.calls))]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    size = draw(st.integers(2, 5))
    groups: dict[str, tuple[int, ...]] = {"default": tuple(range(size))}
    for name in "ab"[: draw(st.integers(0, 2))]:
        groups[name] = tuple(draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=size, unique=True)))
    common = draw(st.lists(st.sampled_from(sorted(groups)), max_size=6))
    calls = [[name for name in common if rank in groups[name]] for rank in range(size)]
    for rank in draw(st.lists(st.integers(0, size - 1), max_size=2)):  # the bugs: dropped, doubled, swapped calls
        own = [name for name in sorted(groups) if rank in groups[name]]
        calls[rank] = draw(st.one_of(st.permutations(calls[rank]), st.lists(st.sampled_from(own), max_size=6)))
    return Program(calls, groups, draw(st.lists(st.booleans(), min_size=size, max_size=size)))


@given(programs(), st.data())
def test_the_doomed_are_those_that_never_go_on(program: Program, data: st.DataObject) -> None:
    """From any moment of any schedule: a rank goes on in some continuation if and only if it is not doomed.

    A rank that runs on for ever without a further call may, for all that can be seen, still come to any of them.
    """
    moves: Sequence[int] = data.draw(st.lists(st.integers(0, len(program.calls) - 1), max_size=25))
    for rank in moves:
        program.move(rank)
    found = doomed(program.positions())
    inside = [rank for rank in range(len(program.calls)) if program.inside[rank]]
    free = optimist(program)
    event(f"doomed: {len(found)} of {len(inside)} waiting")
    assert sorted(found) == [rank for rank in inside if rank not in free]
    for wait in found.values():
        assert wait.missing, "who waits for nobody is not doomed"
        behind = [program.entered[member][wait.record.step.target] for member in wait.missing]
        assert max(behind) <= wait.record.step.sequence
    # And in truth: however the run goes on, no doomed rank ever leaves its call.
    before = list(program.at)
    while any(program.move(rank) for rank in range(len(program.calls))):
        pass
    assert all(program.at[rank] == before[rank] for rank in found)


def optimist(program: Program) -> set[int]:
    """The ranks that can leave their call if every rank that runs does whatever the others wish."""
    size = len(program.calls)
    gone = [program.position(rank).ended for rank in range(size)]
    free = {rank for rank in range(size) if not program.inside[rank] and not gone[rank]}
    for _ in range(size):
        for rank in range(size):
            if not program.inside[rank]:
                continue
            group = program.calls[rank][program.at[rank]]
            here = program.entered[rank][group]
            if all(program.entered[member][group] >= here or member in free for member in program.groups[group]):
                free.add(rank)
    return free


@given(programs())
def test_a_run_that_stands_still_is_doomed_but_for_those_that_run(program: Program) -> None:
    """When nobody can move any more, everybody who waits only for ranks that have ended or wait is doomed."""
    while any(program.move(rank) for rank in range(len(program.calls))):
        pass
    positions = program.positions()
    if all(position.ended or position.at for position in positions):
        stuck = [rank for rank, position in enumerate(positions) if position.at]
        event("deadlock" if stuck else "all returned")
        assert sorted(doomed(positions)) == stuck


@pytest.mark.parametrize(
    ("ranks", "named"),
    [
        ([2], "rank 2"),
        ([0, 1, 3], "ranks 0, 1, 3"),
        (range(8), "ranks 0, 1, 2, 3, 4, 5, 6, 7"),
        (range(25), "ranks 0-24"),
        ([*range(24), 26, 30, 31], "ranks 0-23, 26, 30-31"),
        (range(0, 128, 2), "ranks 0, 2 … 126"),
        ([0, 1, *range(8, 64, 8), 57, 59, 61], "ranks 0-1, 8, 16 … 56, 57, 59, 61"),
    ],
)
def test_many_ranks_are_named_as_ranges(ranks: Sequence[int], named: str) -> None:
    assert name_ranks(ranks) == named
