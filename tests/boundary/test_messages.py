"""Messages get the numbers that their other end gives them, or none."""

from __future__ import annotations

import threading

import pytest

from rankdrill.boundary.messages import MOST_STREAMS, Messages
from rankdrill.boundary.numbering import Tally
from rankdrill.step import ANYBODY, NO_SEQUENCE, OUTSIDE, RECV, SEND, Message

RANKS = (4, 7, 9)  # of the world, by rank in the group


def messages(place: int = 0, tally: Tally | None = None) -> Messages:
    return Messages(11, RANKS, place, tally or Tally())


def test_messages_are_counted_by_way_peer_and_tag() -> None:
    mine = messages()
    assert [mine.take(SEND, 1, 0) for _ in range(2)] == [Message(7, 0, 0), Message(7, 0, 1)]
    assert mine.take(SEND, 2, 0) == Message(9, 0, 0)
    assert mine.take(SEND, 1, 5) == Message(7, 5, 0)
    assert mine.take(RECV, 1, 0) == Message(7, 0, 0)


@pytest.mark.parametrize("peer", [-1, 3])
def test_a_rank_that_the_group_does_not_have(peer: int) -> None:
    tally = Tally()
    assert messages(0, tally).take(SEND, peer, 2) == Message(OUTSIDE, 2)
    assert tally.total == 0


def test_what_was_refused_gives_its_number_back() -> None:
    tally = Tally()
    mine = messages(0, tally)
    mine.take(SEND, 1, 0)
    after_one = tally.total
    refused = mine.take(SEND, 1, 0)
    mine.give_back(SEND, 1, refused)
    assert tally.total == after_one
    assert mine.take(SEND, 1, 0) == refused
    mine.give_back(SEND, 1, Message(7, 0, 0))
    assert mine.take(SEND, 1, 0).number == 2, "somebody has taken another since"


def test_a_receive_from_anybody_is_numbered_when_its_sender_is_known() -> None:
    mine = messages()
    assert mine.take(RECV, None, 3) == Message(ANYBODY, 3, NO_SEQUENCE)
    assert mine.arrived(2, 3) == Message(9, 3, 0)
    assert mine.take(RECV, 2, 3) == Message(9, 3, 1)


def test_where_it_is_not_known_whose_message_is_whose_none_is_numbered() -> None:
    mine = messages()
    mine.take(RECV, None, 3)
    assert mine.take(RECV, 2, 4).number == 0, "another tag"
    assert mine.take(SEND, 2, 3).number == 0, "another way"
    assert mine.take(RECV, 2, 3).number == NO_SEQUENCE
    mine.take(RECV, None, 3)
    assert mine.arrived(1, 3).number == NO_SEQUENCE
    assert mine.take(RECV, 1, 3).number == NO_SEQUENCE


def test_once_all_from_anybody_are_there_it_is_known_again_how_many_came_from_whom() -> None:
    tally = Tally()
    mine = messages(0, tally)
    for _ in range(3):
        mine.take(RECV, None, 3)
    assert [mine.arrived(peer, 3) for peer in (1, 2, 1)] == [Message(RANKS[peer], 3, NO_SEQUENCE) for peer in (1, 2, 1)]
    assert mine.take(RECV, 1, 3) == Message(7, 3, 2)
    assert mine.take(RECV, 2, 3) == Message(9, 3, 1)
    others = [messages(place, tally) for place in (1, 2)]
    for place, many in ((1, 3), (2, 2)):
        for _ in range(many):
            others[place - 1].take(SEND, 0, 3)
    assert tally.total == 0


def test_a_refused_receive_from_anybody_leaves_no_doubt() -> None:
    mine = messages()
    mine.give_back(RECV, None, mine.take(RECV, None, 3))
    assert mine.take(RECV, 2, 3).number == 0


def test_the_tallies_of_all_ranks_are_nothing_when_all_have_met() -> None:
    tallies = [Tally() for _ in RANKS]
    sides = [messages(place, tally) for place, tally in enumerate(tallies)]

    def total() -> int:
        return sum(tally.total for tally in tallies) % (1 << 64)

    for tag in (0, 1):
        sides[0].take(SEND, 1, tag)
        assert total()
        sides[1].take(RECV, 0, 1 - tag)
    assert total() == 0
    sides[2].take(SEND, 1, 0)
    sides[1].take(RECV, None, 0)
    assert total()
    sides[1].arrived(2, 0)
    assert total() == 0


def test_a_program_that_takes_a_new_tag_for_every_message_is_bounded() -> None:
    mine = messages()
    for tag in range(MOST_STREAMS):
        mine.take(SEND, 1, tag)
    assert mine.take(SEND, 1, MOST_STREAMS).number == NO_SEQUENCE
    assert mine.take(SEND, 1, 0).number == 1


def test_threads_get_different_numbers() -> None:
    mine, got = messages(), list[int]()

    def take() -> None:
        got.extend(mine.take(SEND, 1, 0).number for _ in range(500))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(2000))
