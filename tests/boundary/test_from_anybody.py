"""What is kept of messages that anybody might have sent: who did, and whether all sent the same."""

from __future__ import annotations

import torch

from rankdrill.boundary.from_anybody import MOST_BYTES, MOST_LINES, MOST_SENDERS, FromAnybody, TakenThere
from rankdrill.step import ANYBODY, Kind, Message, Site, Step


def step(line: int = 3, tag: int = 0) -> Step:
    return Step(
        Kind.COLLECTIVE, "recv", "default", site=Site("server.py", line, "serve"), message=Message(ANYBODY, tag)
    )


def taken(*messages: tuple[int, torch.Tensor]) -> list[TakenThere]:
    received = FromAnybody()
    for source, tensor in messages:
        received.add(step(), source, [tensor])
    return received.take()


def test_different_messages_of_two() -> None:
    (found,) = taken((2, torch.ones(3)), (1, torch.zeros(4)))
    assert found == TakenThere(Site("server.py", 3, "serve"), "default", 0, (1, 2), True, 3, (), False, False)


def test_the_same_of_all() -> None:
    (found,) = taken((1, torch.ones(3)), (2, torch.ones(3)), (3, torch.ones(3)))
    assert (found.senders, found.differ, found.vary) == ((1, 2, 3), False, False)


def test_rounds_in_each_of_which_all_say_the_same() -> None:
    (found,) = taken(*((source, torch.full((2,), turn)) for turn in range(3) for source in (1, 2)))
    assert (found.differ, found.vary) == (False, True)


def test_one_that_only_says_less() -> None:
    (found,) = taken((1, torch.zeros(1)), (1, torch.ones(1)), (2, torch.zeros(1)))
    assert not found.differ


def test_one_sender_does_not_differ_from_itself() -> None:
    (found,) = taken((1, torch.ones(3)), (1, torch.zeros(3)))
    assert found == TakenThere(Site("server.py", 3, "serve"), "default", 0, (1,), False, 3, (), False, True)


def test_tags_are_kept_apart() -> None:
    received = FromAnybody()
    for source in (1, 2):
        received.add(step(tag=source), source, [torch.ones(1)])
    assert [(found.tag, found.senders) for found in received.take()] == [(1, (1,)), (2, (2,))]


def test_several_lines_of_a_function_are_told_together() -> None:
    received = FromAnybody()
    for source in (2, 1):
        received.add(step(line=source), source, [torch.full((3 + source,), float(source))])
    *each, together = received.take()
    assert [found.senders for found in each] == [(2,), (1,)]
    assert together == TakenThere(Site("server.py", 1, "serve"), "default", 0, (1, 2), True, 4, (), True, False)


def test_what_has_been_told_is_forgotten() -> None:
    received = FromAnybody()
    for source in (1, 2):
        received.add(step(), source, [torch.ones(1)])
    assert len(received.take()) == 1
    assert received.take() == []
    received.add(step(), 1, [torch.ones(1)])
    (found,) = received.take()
    assert found.senders == (1,)


def test_empty_and_large_messages() -> None:
    (found,) = taken((1, torch.zeros(0)), (2, torch.zeros(0)))
    assert (found.differ, found.elements) == (False, 0)
    large = torch.zeros(2 * MOST_BYTES, dtype=torch.uint8)
    other = large.clone()
    other[-1] = 1
    (found,) = taken((1, large), (2, other))
    assert not found.differ
    other[0] = 1
    (found,) = taken((1, large), (2, other))
    assert found.differ


def test_memory_that_cannot_be_read_says_nothing() -> None:
    scattered = torch.zeros(4, 4).t()[:2]
    assert taken((1, scattered), (2, scattered)) == []
    assert taken((1, torch.zeros(2, device="meta")), (2, torch.zeros(2, device="meta"))) == []


def test_as_much_as_there_is_room_for() -> None:
    received = FromAnybody()
    for line in range(MOST_LINES + 5):
        for source in range(MOST_SENDERS + 5):
            received.add(step(line=line), source, [torch.tensor([source])])
    *found, together = received.take()
    assert len(found) == MOST_LINES
    assert {len(each.senders) for each in [*found, together]} == {MOST_SENDERS}
