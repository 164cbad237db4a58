"""Whether anything orders two sends to one rank: read from ledgers that were written in a known order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from rankdrill.diagnosis.races.order import unordered
from rankdrill.diagnosis.races.taken import Taken
from rankdrill.ledger import LedgerReader, LedgerView, LedgerWriter, State
from rankdrill.step import Kind, Message, Site, Step

HERE = Site("server.py", 7, "serve")
TAKEN = Taken(HERE, "default", 0, (1, 2), True, 4)
RANKS = 3
Event: TypeAlias = tuple[int, str, int]
"""A rank, what it does, and with whom. What begins with ``end`` ends what it began in these words."""
Find = Callable[..., "tuple[int, int] | None"]


@pytest.fixture
def find(tmp_path: Path) -> Find:
    """The ranks whose sends to rank 0 nothing orders, if ranks did this one after the other."""

    def look(*events: Event, room: int = 64, the_last: bool = False, by_lines: bool = False) -> tuple[int, int] | None:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        pair = unordered(0, replace(TAKEN, by_lines=by_lines), _written(folder, events, room), the_last=the_last)
        return (pair[0].rank, pair[1].rank) if pair is not None else None

    return look


def _written(folder: Path, events: Sequence[Event], room: int) -> dict[int, LedgerView]:
    paths = [folder / f"{rank}" for rank in range(RANKS)]
    ledgers = [LedgerWriter(path, rank=rank, world_size=RANKS, capacity=room) for rank, path in enumerate(paths)]
    numbers: Counter[Event] = Counter()
    under_way: dict[Event, int] = {}
    for event in events:
        rank, does, peer = event
        if does.startswith("end "):
            ledgers[rank].mark(under_way.pop((rank, does.removeprefix("end "), peer)), State.ENDED)
        else:
            same = (rank, does.removesuffix(" elsewhere"), peer)
            under_way[event] = ledgers[rank].begin(_step(does, peer, numbers[same]))
            numbers[same] += 1
    for ledger in ledgers:
        ledger.close()
    return {rank: LedgerReader(path).view() for rank, path in enumerate(paths)}


def _step(does: str, peer: int, number: int) -> Step:
    match does:
        case "send" | "recv":
            return Step(Kind.COLLECTIVE, does, "default", f"float32[4] peer={peer}", message=Message(peer, 9, number))
        case "ask":  # rank 0, for it to take the message
            return Step(Kind.COLLECTIVE, "send", "default", f"float32[4] peer={peer}", message=Message(peer, 0, number))
        case "take" | "take elsewhere":  # from whom it turned out to be
            site = HERE if does == "take" else replace(HERE, caller=Site("server.py", 70, "begin"))
            message = Message(peer, 0, number)
            return Step(Kind.COLLECTIVE, "recv", "default", "float32[4] peer=any tag=0", site=site, message=message)
        case "take below":
            site, message = replace(HERE, line=8), Message(peer, 0, number)
            return Step(Kind.COLLECTIVE, "recv", "default", "float32[4] peer=any tag=0", site=site, message=message)
        case "take from":
            return Step(Kind.COLLECTIVE, "recv", "default", "float32[4] peer=2", site=HERE, message=Message(peer, 0))
        case "barrier":
            return Step(Kind.COLLECTIVE, does, "default", sequence=number)
        case "set" | "get" | "check":
            return Step(Kind.STORE, does, "key", digest=1)
        case "set another":
            return Step(Kind.STORE, "set", "another", digest=2)
        case "multi_set":
            return Step(Kind.STORE, does, "another", digest=2)
        case "dumps" | "load":
            return Step(Kind.OBJECT, does, "_io.BytesIO")
        case "make a group":
            return Step(Kind.GROUP, "new_group", "default", "ranks=1,2", sequence=number)
        case "group":
            return Step(Kind.GROUP, "new_group", "default", "ranks=1,2")
        case "open" | "stat":
            return Step(Kind.FILE, does, "/data/flag")
        case "map":
            return Step(Kind.SHM, does, "/dev/shm/flags")
        case "loads":
            return Step(Kind.OBJECT, does, "dict")
    return Step(Kind.CLOCK, does, "monotonic")


def whole(rank: int, does: str, peer: int = 0) -> list[Event]:
    return [(rank, does, peer), (rank, f"end {does}", peer)]


TOOK = [*whole(0, "take", 1), *whole(0, "take", 2)]
FIRST, SECOND = whole(1, "ask"), whole(2, "ask")


def test_two_that_send_at_the_same_time(find: Find) -> None:
    assert find((1, "ask", 0), (2, "ask", 0), *TOOK, (1, "end ask", 0), (2, "end ask", 0)) == (1, 2)


def test_one_that_is_late_by_chance(find: Find) -> None:
    assert find(*FIRST, *whole(0, "take", 1), *whole(2, "clock"), *SECOND, *whole(0, "take", 2)) == (1, 2)


def test_after_a_collective_that_all_had_entered_before(find: Find) -> None:
    entered = [(rank, "barrier", 0) for rank in range(RANKS)]
    left = [(rank, "end barrier", 0) for rank in range(RANKS)]
    assert find(*entered, left[0], left[1], *FIRST, left[2], *SECOND, *TOOK) == (1, 2)


def test_a_collective_between_the_two(find: Find) -> None:
    entered = [(rank, "barrier", 0) for rank in (0, 2, 1)]
    left = [(rank, "end barrier", 0) for rank in range(RANKS)]
    assert find(entered[0], entered[1], *FIRST, entered[2], *left, *SECOND, *TOOK) is None


def test_a_collective_that_one_came_to_late_who_had_heard_of_nobody(find: Find) -> None:
    """A broadcast, say, which most have left by then."""
    before = [*whole(1, "barrier"), (2, "barrier", 0)]
    late = [*whole(0, "barrier"), (2, "end barrier", 0)]
    assert find(*before, *FIRST, *late, *SECOND, *TOOK) == (1, 2)
    assert find(*before, *FIRST, *whole(0, "take", 1), *late, *SECOND, *whole(0, "take", 2)) is None


@pytest.mark.parametrize("told", [False, True])
def test_a_group_that_one_came_to_make_late(find: Find, *, told: bool) -> None:
    """Whoever makes it with others hears of what those have heard of before they came, and of nothing else."""
    make, late = "make a group", whole(0, "make a group")
    before = [*whole(1, make), (2, make, 0)]
    heard = whole(0, "take", 1) if told else []
    found = find(*before, *FIRST, *heard, *late, (2, f"end {make}", 0), *SECOND, *TOOK[2 if told else 0 :])
    assert found == (None if told else (1, 2))


def test_a_message_between_the_two(find: Find) -> None:
    passed = [(2, "recv", 1), *FIRST, *whole(1, "send", 2), (2, "end recv", 1)]
    assert find(*passed, *SECOND, *TOOK) is None


def test_a_message_that_was_sent_before_either(find: Find) -> None:
    assert find(*whole(1, "send", 2), *FIRST, *whole(2, "recv", 1), *SECOND, *TOOK) == (1, 2)


def test_a_message_of_which_nobody_knows_when_it_was_sent(find: Find) -> None:
    assert find(*FIRST, *whole(2, "recv", 1), *SECOND, *TOOK) is None


@pytest.mark.parametrize("event", [(1, "open", 0), (2, "loads", 0)])
def test_what_else_others_may_see(find: Find, event: Event) -> None:
    assert find(*FIRST, *whole(*event), *SECOND, *TOOK) is None
    assert find(*whole(*event), *FIRST, *SECOND, *TOOK) == (1, 2)


def test_a_store_tells_who_looks(find: Find) -> None:
    told, looked = whole(1, "set"), whole(2, "get")
    assert find(*FIRST, *told, *SECOND, *TOOK) == (1, 2)
    assert find(*FIRST, *looked, *SECOND, *TOOK) == (1, 2)
    assert find(*told, *FIRST, *looked, *SECOND, *TOOK) == (1, 2)
    assert find(*FIRST, *told, *looked, *SECOND, *TOOK) is None


def test_a_store_tells_what_those_have_heard_who_set_it(find: Find) -> None:
    by_another, looked = whole(0, "set"), whole(2, "get")
    assert find(*FIRST, *by_another, *looked, *SECOND, *TOOK) == (1, 2), "that one has heard of nothing"
    took_first, took_second = whole(0, "take", 1), whole(0, "take", 2)
    assert find(*FIRST, *took_first, *by_another, *looked, *SECOND, *took_second) is None
    # Who has begun to receive may look whether it has come, without a step.
    assert find((0, "take", 1), *FIRST, *by_another, *looked, (0, "end take", 1), *SECOND, *took_second) is None
    assert find(*FIRST, *whole(1, "set another"), *looked, *SECOND, *TOOK) == (1, 2), "not by that key"
    assert find(*FIRST, *whole(1, "set another"), *whole(2, "check"), *SECOND, *TOOK) is None, "whichever that was"
    assert find(*FIRST, *whole(1, "multi_set"), *looked, *SECOND, *TOOK) is None, "several at once"


def test_objects_tell_what_they_came_with(find: Find) -> None:
    for nothing in ("dumps", "load"):  # what is pickled; what torch unpickles of what it has received
        assert find(*FIRST, *whole(2, nothing), *SECOND, *TOOK) == (1, 2)


def test_it_is_followed_as_far_as_it_goes(find: Find) -> None:
    """From rank 1 to 0, from that to 2, back to 0 and to 2 again: three that tell the next."""
    chain = [*whole(1, "barrier"), *whole(0, "barrier")]
    back = [*whole(0, "send", 2), *whole(2, "recv", 0)]
    assert find(*FIRST, *chain, *back, (2, "barrier", 0), (2, "end barrier", 0), *SECOND, *TOOK) is None


def test_a_file_that_is_only_looked_at_tells_nothing(find: Find) -> None:
    assert find(*FIRST, *whole(1, "stat"), *whole(2, "stat"), *SECOND, *TOOK) == (1, 2)


def test_a_group_that_is_made_tells_who_makes_it_too(find: Find) -> None:
    first, second = (1, "group", 0), (2, "group", 0)
    ends = [(1, "end group", 0), (2, "end group", 0)]
    assert find(first, second, ends[0], *FIRST, ends[1], *SECOND, *TOOK) == (1, 2)
    assert find(*FIRST, first, second, *ends, *SECOND, *TOOK) is None


def test_memory_that_is_shared_shows_more_than_steps_tell(find: Find) -> None:
    assert find(*whole(0, "map"), *FIRST, *SECOND, *TOOK) is None


def test_a_lock_that_its_holder_has_let_go(find: Find) -> None:
    assert find((2, "open", 0), *FIRST, (2, "end open", 0), *SECOND, *TOOK) is None


def test_what_is_also_received_from_one_of_them(find: Find) -> None:
    assert find(*FIRST, *SECOND, *whole(0, "take", 1), *whole(0, "take from", 2)) is None


def test_a_helper_that_is_called_from_elsewhere(find: Find) -> None:
    elsewhere = [*whole(0, "take elsewhere", 1), *whole(0, "take elsewhere", 2)]
    told = [*whole(0, "set"), *whole(2, "get")]
    here = [*whole(1, "ask"), *whole(0, "take", 1), *told, *whole(2, "ask"), *whole(0, "take", 2)]
    assert find(*FIRST, *SECOND, *elsewhere, *here) is None
    assert find(*FIRST, *SECOND, *elsewhere, *FIRST, *SECOND, *TOOK) == (1, 2)


def test_the_last_that_came_after_all_others(find: Find) -> None:
    begun, told = [*FIRST, *SECOND, *TOOK], [*whole(0, "set"), *whole(1, "get")]
    assert find(*begun, *told, *FIRST, *whole(0, "take", 1), the_last=True) is None
    assert find(*begun, *told, *FIRST, *whole(0, "take", 1)) == (1, 2)
    assert find(*begun, the_last=True) == (1, 2)


def test_one_sender(find: Find) -> None:
    assert find(*FIRST, *FIRST, *whole(0, "take", 1), *whole(0, "take", 1)) is None


def test_what_the_ledger_no_longer_reaches(find: Find) -> None:
    lost = [event for _ in range(4) for event in whole(2, "clock")]
    assert find(*FIRST, *whole(2, "recv", 1), *lost, *SECOND, *TOOK, room=4) is None


def test_two_that_two_lines_take(find: Find) -> None:
    by_two = [*whole(0, "take", 1), *whole(0, "take below", 2)]
    assert find(*FIRST, *SECOND, *by_two, by_lines=True) == (1, 2)
    assert find(*FIRST, *SECOND, *TOOK, by_lines=True) is None, "one line has taken both"
    assert find(*FIRST, *whole(0, "take from", 2), *SECOND, *by_two, by_lines=True) is None, "a sender is named there"
    assert find(*whole(1, "send", 2), (2, "recv", 1), *FIRST, (2, "end recv", 1), *SECOND, *by_two, by_lines=True) == (
        1,
        2,
    )
    assert find(*FIRST, (1, "send", 2), *whole(2, "recv", 1), *SECOND, *by_two, by_lines=True) is None, (
        "they are ordered"
    )
