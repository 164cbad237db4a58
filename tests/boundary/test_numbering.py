"""The numbers of a group's collectives."""

from __future__ import annotations

import sys
import threading

from rankdrill.boundary.numbering import numbering as new_numbering


def test_each_number_is_taken_once_whichever_threads_take_them() -> None:
    numbering, taken = new_numbering(), list[int]()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(target=lambda: taken.extend(numbering.take() for _ in range(2000))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(taken) == list(range(8000))
    assert numbering.upcoming == 8000


def test_a_number_can_be_given_back() -> None:
    numbering = new_numbering()
    numbering.take()
    numbering.give_back(numbering.take())
    assert numbering.take() == 1


def test_what_others_have_taken_since_is_not_given_again() -> None:
    numbering = new_numbering()
    first, second = numbering.take(), numbering.take()
    numbering.give_back(first)
    assert numbering.take() == second + 1
