"""Whom the dumps of a job accuse: small jobs, each with one fault, and their twins without."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rankdrill.diagnosis import Confidence
from rankdrill.explain.explanation import Explanation
from rankdrill.explain.flight.explained import explain_dumps
from tests.explain.flights import VERSIONS, Flight, Op, as_torchcomms, recv, send, torch_pickle, write

ORDER = ("call ordering", "missing call", "extra call")
PAIR = {"1": ("a", (0, 1)), "2": ("b", (0, 1))}
RING = {"1": ("a", (0, 1)), "2": ("b", (1, 2)), "3": ("c", (0, 2))}
TWICE = {"1": ("a", (0, 1, 2, 3)), "2": ("b", (0, 1, 2, 3))}
HALVES = {"1": ("a", (0, 1, 2, 3)), "2": ("b", (4, 5, 6, 7))}


@dataclass(frozen=True)
class Case:
    """A job with what is right to say of it: one of `kinds`, and exactly these culprits; None to find nothing."""

    name: str
    flight: Callable[[], Flight]
    kinds: Sequence[str] | None
    culprits: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.name


def summed(line: int = 10, elements: int = 4, group: str = "0", dtype: str = "Float") -> Op:
    return Op("all_reduce", group, ((elements,),), dtype, line)


def sent(line: int = 11, group: str = "0") -> Op:
    return Op("broadcast", group, line=line)


def met(line: int = 13) -> Op:
    return Op("barrier", sizes=((1,),), line=line)


def rounds(count: int) -> list[Op]:
    return [op for _ in range(count) for op in (summed(10), sent(11), summed(14, 8))]


def ranks(count: int, program: Callable[[int], list[Op]]) -> dict[int, list[Op]]:
    return {rank: program(rank) for rank in range(count)}


def without(odd: int, place: int, count: int = 5) -> Callable[[int], list[Op]]:
    """The rounds, of which the rank `odd` leaves out the call at `place`."""
    return lambda rank: [op for at, op in enumerate(rounds(count)) if rank != odd or at != place]


def in_turn(odd: int) -> Callable[[int], list[Op]]:
    """Two groups, which the rank `odd` takes in the other order."""
    one, two = summed(group="1"), summed(group="2")
    return lambda rank: rounds(2) + ([two, one] if rank == odd else [one, two])


def cut(flight: Flight, ends: dict[int, int]) -> Flight:
    """As if ranks had written their dumps before the others did."""
    for rank, end in ends.items():
        flight.entries[rank] = flight.entries[rank][:end]
    return flight


def never_ending() -> Flight:
    flight = Flight(ranks(4, lambda rank: rounds(2)))
    for entries in flight.entries.values():
        entries[-1].state = "started"
    return flight


FAULTS = [
    Case(
        "another op first",
        lambda: Flight(ranks(4, lambda rank: [met() if rank == 1 else summed(), met()])),
        ORDER,
        (1,),
    ),
    Case(
        "another op last",
        lambda: Flight(ranks(4, lambda rank: [*rounds(3), sent() if rank == 3 else summed()])),
        ORDER,
        (3,),
    ),
    Case("a call left out in a loop", lambda: Flight(ranks(4, without(2, 7))), ("missing call",), (2,)),
    Case(
        "a call too many",
        lambda: Flight(ranks(4, lambda rank: rounds(2) + [met()] * (rank == 0) + rounds(2))),
        ORDER,
        (0,),
    ),
    Case(
        "one of ten alike left out",
        lambda: Flight(ranks(4, lambda rank: [summed()] * (10 - (rank == 1)))),
        ("missing call",),
        (1,),
    ),
    Case(
        "one of ten alike too many",
        lambda: Flight(ranks(4, lambda rank: [summed()] * (10 + (rank == 1)))),
        ("extra call",),
        (1,),
    ),
    Case(
        "a rank gone",
        lambda: Flight(ranks(4, lambda rank: rounds(4)), until={2: 5}, gone=frozenset({2})),
        ("lost rank",),
        (2,),
    ),
    Case(
        "two gone",
        lambda: Flight(ranks(8, lambda rank: rounds(4)), until={2: 5, 5: 5}, gone=frozenset({2, 5})),
        ("lost rank",),
        (2, 5),
    ),
    Case("a straggler", lambda: Flight(ranks(4, lambda rank: rounds(4)), until={3: 6}), ("missing call",), (3,)),
    Case("nothing recorded", lambda: Flight(ranks(4, lambda rank: rounds(2)), until={1: 0}), ("missing call",), (1,)),
    Case(
        "a circle of two groups",
        lambda: Flight({0: [summed(group="1"), summed(group="2")], 1: [summed(group="2"), summed(group="1")]}, PAIR),
        ("deadlock",),
    ),
    Case(
        "a circle of three groups",
        lambda: Flight(
            {
                0: [summed(group="1"), summed(group="3")],
                1: [summed(group="2"), summed(group="1")],
                2: [summed(group="3"), summed(group="2")],
            },
            RING,
        ),
        ("deadlock",),
    ),
    Case("groups in another order", lambda: Flight(ranks(4, in_turn(3)), TWICE), ("deadlock",), (3,)),
    Case("groups in another order, ahead", lambda: Flight(ranks(4, in_turn(3)), TWICE, ahead=8), ("deadlock",), (3,)),
    Case(
        "a send without its receive",
        lambda: Flight({0: [summed(), send(1), summed()], 1: [summed()]}),
        ("unmatched message",),
    ),
    Case(
        "a receive without its send",
        lambda: Flight({0: [summed(), recv(1), summed()], 1: [summed(), summed()]}),
        ("unmatched message", "deadlock"),
    ),
    Case(
        "a stage that computes",
        lambda: Flight({0: [send(1)] * 3, 1: [recv(0), send(2)] * 3, 2: [recv(1)]}),
        ("unmatched message",),
    ),
    Case(
        "another size",
        lambda: Flight(ranks(4, lambda rank: [*rounds(2), summed(18, 5 if rank == 2 else 4)])),
        ("size mismatch",),
        (2,),
    ),
    Case(
        "another type",
        lambda: Flight(ranks(4, lambda rank: [*rounds(2), summed(18, dtype="Half" if rank == 2 else "Float")])),
        ("datatype mismatch",),
        (2,),
    ),
    Case(
        "one against one", lambda: Flight(ranks(2, lambda rank: [*rounds(1), sent(20) if rank else summed(19)])), ORDER
    ),
    Case("rings that wrapped", lambda: Flight(ranks(4, without(2, 100, 40)), ring=16), ORDER, (2,)),
    Case("ahead of the device", lambda: Flight(ranks(4, without(2, 10, 8)), ahead=8), ("missing call",), (2,)),
    Case(
        "a straggler, others ahead",
        lambda: Flight(ranks(4, lambda rank: rounds(8)), ahead=8, until={1: 9}),
        ("missing call",),
        (1,),
    ),
    Case("one of many", lambda: Flight(ranks(64, without(42, 7))), ("missing call",), (42,)),
    Case("as gloo records it", lambda: Flight(ranks(4, without(2, 7)), backend="gloo"), ("missing call",), (2,)),
]

RIGHT = [
    Case("all has ended", lambda: Flight(ranks(4, lambda rank: rounds(5))), None),
    Case("all has ended, as gloo records it", lambda: Flight(ranks(4, lambda rank: rounds(5)), backend="gloo"), None),
    Case("dumps of different moments", lambda: cut(Flight(ranks(4, lambda rank: rounds(5))), {1: 8, 2: 9, 3: 8}), None),
    Case("of gloo, too", lambda: cut(Flight(ranks(4, lambda rank: rounds(5)), backend="gloo"), {1: 8, 3: 9}), None),
    Case(
        "rings of different starts",
        lambda: cut(Flight(ranks(4, lambda rank: rounds(40)), ring=16), {1: -3, 2: -5}),
        None,
    ),
    Case("a call under way", never_ending, None),
    Case("a pipeline", lambda: Flight({0: [send(1)] * 3, 1: [recv(0), send(2)] * 3, 2: [recv(1)] * 3}), None),
    Case("lines of their own", lambda: Flight(ranks(4, lambda rank: [sent(30 + rank), summed()])), None),
    Case(
        "an exchange of uneven parts",
        lambda: Flight(
            ranks(4, lambda rank: [Op("all_to_all_single", sizes=((rank + 1,),), outputs=((4 - rank,),)), summed()])
        ),
        None,
    ),
    Case(
        "outputs at the root alone",
        lambda: Flight(ranks(4, lambda rank: [Op("gather", outputs=((16,),) if rank == 0 else ()), summed()])),
        None,
    ),
    Case(
        "two spellings of a call",
        lambda: Flight(
            ranks(4, lambda rank: [Op("_allgather_base" if rank else "all_gather", outputs=((16,),)), summed()])
        ),
        None,
    ),
]


def explained(flight: Flight, directory: Path, *, as_json: bool = False) -> Explanation:
    return explain_dumps([write(flight, directory / "dumps", as_json=as_json)])


@pytest.mark.parametrize("case", FAULTS, ids=str)
def test_a_fault_is_told_and_nobody_else_accused(case: Case, tmp_path: Path) -> None:
    found = explained(case.flight(), tmp_path)
    assert len(found.causes) == 1, found.causes
    finding = found.causes[0].finding
    assert str(finding.kind) in (case.kinds or ())
    assert finding.culprits == case.culprits
    assert not set(found.victims) & set(finding.ranks)
    assert found.causes[0].why


@pytest.mark.parametrize("case", RIGHT, ids=str)
def test_where_nothing_is_wrong_nobody_is_accused(case: Case, tmp_path: Path) -> None:
    assert explained(case.flight(), tmp_path).causes == ()


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_is_read(version: str, as_json: bool, tmp_path: Path) -> None:
    found = explained(Flight(ranks(4, without(2, 7)), version=version), tmp_path, as_json=as_json)
    (cause,) = found.causes
    assert cause.finding.culprits == (2,)
    newer = [gap for gap in found.gaps if "newer than 2.10" in gap]
    assert bool(newer) is (version == "2.11")


def test_two_faults_apart_from_each_other_are_both_told(tmp_path: Path) -> None:
    program = ranks(8, lambda rank: [summed(group="1" if rank < 4 else "2")] * (4 if rank in (1, 6) else 5))
    found = explained(Flight(program, HALVES), tmp_path)
    assert [cause.finding.culprits for cause in found.causes] == [(1,), (6,)]


def test_a_mismatch_of_which_all_is_recorded_is_certain_and_with_a_dump_missing_likely(tmp_path: Path) -> None:
    found = explained(Flight(ranks(4, without(2, 7))), tmp_path)
    assert found.causes[0].confidence is Confidence.CERTAIN
    (tmp_path / "dumps" / "nccl_trace_rank_0").unlink()
    found = explain_dumps([tmp_path / "dumps"])
    assert found.causes[0].finding.culprits == (2,)
    assert found.causes[0].confidence is Confidence.LIKELY


def test_what_a_torn_dump_would_have_told_is_not_made_up(tmp_path: Path) -> None:
    flight = Flight(ranks(4, lambda rank: rounds(4)), until={2: 5})
    torn = write(flight, tmp_path) / "nccl_trace_rank_2"
    torn.write_bytes(torn.read_bytes()[:-100])
    found = explain_dumps([tmp_path])
    assert found.causes == ()
    assert any("rank 2" in fit and "cannot be read" in fit for fit in found.fits)
    assert any(gap.startswith("nccl_trace_rank_2 is cut off") for gap in found.gaps)


def test_who_is_stuck_with_others_in_a_call_is_not_accused_of_leaving_out_the_next(tmp_path: Path) -> None:
    flight = Flight(ranks(4, lambda rank: [*[summed(group="1")] * (rank < 2), summed()]), {"1": ("a", (0, 1))})
    for rank in (0, 1):
        flight.entries[rank] = flight.entries[rank][:1]
        flight.entries[rank][0].state = "started"
    for rank in (2, 3):
        flight.entries[rank][0].state = "started"
    found = explained(flight, tmp_path)
    assert found.causes == ()
    assert any("ranks 0, 1 do not get out of all_reduce #1 on 'a'" in fit for fit in found.fits)


def test_a_device_that_has_not_begun_what_the_others_are_in_is_what_they_wait_for(tmp_path: Path) -> None:
    flight = Flight(ranks(4, lambda rank: rounds(2)))
    for rank, entries in flight.entries.items():
        entries[-1].state = "scheduled" if rank == 3 else "started"
    found = explained(flight, tmp_path)
    (cause,) = found.causes
    assert cause.finding.culprits == (3,)
    assert "its device has not begun it" in str(cause.finding.sides[0])
    assert found.victims == (0, 1, 2)


def test_a_message_that_has_ended_proves_nothing_of_the_collectives_before_it(tmp_path: Path) -> None:
    program = ranks(3, lambda rank: [summed(), summed()])
    flight = Flight(program, until={2: 1})
    for rank, peer in ((0, 1), (1, 0)):
        last = flight.entries[rank][-1]
        op = Op("coalesced", sizes=(), peer=peer)
        flight.entries[rank].append(replace(last, op=op, record=2, state="completed"))
    assert explained(flight, tmp_path).causes[0].finding.culprits == (2,)


def test_whoever_had_ended_all_may_have_failed_because_of_the_rank_that_is_lost(tmp_path: Path) -> None:
    flight = Flight(ranks(6, lambda rank: rounds(4)), until={2: 5, 3: 5}, gone=frozenset({2}))
    found = explained(flight, tmp_path)
    assert [cause.finding.culprits for cause in found.causes] == [(2,)]
    assert any("rank 3" in fit and "may have come of the loss" in fit for fit in found.fits)


def test_where_most_dumps_are_not_there_nobody_is_called_lost(tmp_path: Path) -> None:
    found = explained(Flight(ranks(4, lambda rank: rounds(4)), until={2: 5}, gone=frozenset({1, 2, 3})), tmp_path)
    (cause,) = found.causes
    assert (cause.confidence, cause.finding.culprits) == (Confidence.POSSIBLE, ())


def test_calls_made_in_a_coalesced_one_have_its_state(tmp_path: Path) -> None:
    def program(rank: int) -> list[Op]:
        return [summed(), send((rank + 1) % 2), recv((rank + 1) % 2), Op("coalesced", sizes=()), summed()]

    flight = Flight(ranks(2, program))
    for entries in flight.entries.values():  # torch leaves the parts as they were, and numbers all alike
        last = entries[0]
        entries[:] = [last]
        for op in program(0)[1:4]:
            entries.append(replace(last, op=op, p2p_seq=1, record=len(entries), state="scheduled"))
        entries[-1].state = "completed"
    dumps = {rank: flight.dump(rank) for rank in (0, 1)}
    for dump in dumps.values():
        for entry in dump["entries"][1:]:
            entry["is_p2p"] = True
    for rank, dump in dumps.items():
        (tmp_path / f"rank_{rank}").write_bytes(torch_pickle(dump))
    assert explain_dumps([tmp_path]).causes == ()
    for dump in dumps.values():
        dump["entries"][-1]["state"] = "started"
    dumps[1]["entries"] = dumps[1]["entries"][:1]
    for rank, dump in dumps.items():
        (tmp_path / f"rank_{rank}").write_bytes(torch_pickle(dump))
    (cause,) = explain_dumps([tmp_path]).causes
    assert str(cause.finding.kind) == "unmatched message"


def drifting(flight: Flight, directory: Path) -> Path:
    """The dumps of `flight` as older torch numbers calls: ranks 0 and 1 exchange batches, each of which counts."""
    for rank in flight.programs:
        dump = flight.dump(rank)
        if rank < 2:
            for place, entry in enumerate(dump["entries"]):
                entry["collective_seq_id"] += place // 2
        (directory / f"rank_{rank}").write_bytes(torch_pickle(dump))
    return directory


def test_of_gloo_a_call_that_has_just_ended_does_not_hide_the_next(tmp_path: Path) -> None:
    flight = Flight(ranks(3, lambda rank: rounds(2)), backend="gloo", until={1: 5})
    flight.entries[2][4].state = "started"  # not yet marked as over
    (cause,) = explained(flight, tmp_path).causes
    assert cause.finding.culprits == (1,)
    assert (0, 2) in [side.ranks for side in cause.finding.sides]


def test_numbers_that_drift_are_counted_anew(tmp_path: Path) -> None:
    assert explain_dumps([drifting(Flight(ranks(4, lambda rank: rounds(5))), tmp_path)]).causes == ()
    (cause,) = explain_dumps([drifting(Flight(ranks(4, without(2, 7))), tmp_path)]).causes
    assert (str(cause.finding.kind), cause.finding.culprits) == ("missing call", (2,))


def test_gaps_that_all_ranks_share_are_no_drift(tmp_path: Path) -> None:
    flight = Flight(ranks(4, without(2, 100, 40)), ring=16)
    for rank in flight.programs:
        dump = flight.dump(rank)
        for entry in dump["entries"]:
            entry["collective_seq_id"] *= 2
        (tmp_path / f"rank_{rank}").write_bytes(torch_pickle(dump))
    (cause,) = explain_dumps([tmp_path]).causes
    assert cause.finding.culprits == (2,)


def test_of_numbers_that_drift_in_rings_that_wrapped_nothing_is_made(tmp_path: Path) -> None:
    found = explain_dumps([drifting(Flight(ranks(4, without(2, 30, 20)), ring=16), tmp_path)])
    assert found.causes == ()
    assert any("which calls on 'default' belong together is not known" in gap for gap in found.gaps)


def test_groups_of_one_name_and_different_members_are_apart(tmp_path: Path) -> None:
    flight = Flight(
        ranks(4, lambda rank: [summed(group="left" if rank < 2 else "right")] * (1 + rank // 2)),
        {"left": ("tp", (0, 1)), "right": ("tp", (2, 3))},
    )
    for rank in flight.programs:
        dump = flight.dump(rank)
        for entry in dump["entries"]:
            entry["process_group"] = ("split", "tp")
        own = dump["pg_config"].pop("left", None) or dump["pg_config"].pop("right")
        dump["pg_config"]["split"] = {**own, "name": "split"}
        (tmp_path / f"rank_{rank}").write_bytes(torch_pickle(dump))
    found = explain_dumps([tmp_path])
    assert found.causes == ()


OF_MESSAGES = {"a send without its receive", "a receive without its send", "a stage that computes"}


def of_torchcomms(flight: Flight, directory: Path, backend: str, *, as_json: bool) -> Explanation:
    for rank in set(flight.programs) - flight.gone:
        dump = as_torchcomms(flight, rank, backend=backend)
        if as_json:  # which has no stacks, and no entries where there are none
            for entry in dump["entries"]:
                del entry["frames"]
            dump = {key: value for key, value in dump.items() if value or key != "entries"}
        raw = json.dumps(dump).encode() if as_json else torch_pickle(dump)
        (directory / f"comm_lib_trace_rank_{rank}").write_bytes(raw)
    return explain_dumps([directory])


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("backend", ["ncclx", "gloo"])
@pytest.mark.parametrize("case", [*FAULTS, *RIGHT], ids=str)
def test_of_torchcomms_the_same_is_told(case: Case, backend: str, as_json: bool, tmp_path: Path) -> None:
    flight = case.flight()
    found = of_torchcomms(flight, tmp_path, backend, as_json=as_json)
    if case.kinds is None or case.name in OF_MESSAGES:
        assert found.causes == ()
        return
    (cause,) = found.causes
    assert str(cause.finding.kind) in (ORDER if as_json and {*case.kinds} & {*ORDER} else case.kinds)
    sure = backend != "gloo" or "extra call" not in case.kinds or len(case.kinds) > 1
    assert cause.finding.culprits == (case.culprits if sure else ())


def test_who_is_in_a_message_of_torchcomms_is_not_accused_of_leaving_a_call_out(tmp_path: Path) -> None:
    flight = Flight({0: [summed(), met()], 1: [summed(), recv(2), met()], 2: [summed(), met()]})
    found = of_torchcomms(flight, tmp_path, "ncclx", as_json=False)
    assert found.causes == ()
    assert any("rank 1 is in recv, and no dump tells whose other end has not come" in fit for fit in found.fits)
    assert any("in recv on 'main_comm', of which no dump tells with whom" in place.doing for place in found.places)
    assert any("do not tell with whom ranks exchange messages" in gap for gap in found.gaps)


def test_groups_of_torchcomms_are_called_by_their_names(tmp_path: Path) -> None:
    flight = Flight(ranks(4, lambda rank: [summed(group="1")] * (2 - (rank == 3))), {"1": ("a", (0, 1, 2, 3))})
    (cause,) = of_torchcomms(flight, tmp_path, "ncclx", as_json=False).causes
    assert cause.finding.step == "all_reduce #1 on 'comm_1'"
    assert cause.finding.culprits == (3,)
