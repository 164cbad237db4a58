"""Keys that are set after they were got: counted once each, whichever threads set them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rankdrill.boundary import updates
from rankdrill.boundary.updates import MOST_KEYS, Updates

THREADS = 8
PATIENCE_S = 10.0


class Slow(tuple[float, ...]):
    """Whoever asks how long it is lets the other threads go on."""

    def __len__(self) -> int:
        time.sleep(0.05)
        return super().__len__()


def test_each_key_counts_once() -> None:
    of_run = Updates()
    of_run.about_to_set(1)
    of_run.got(1)
    of_run.about_to_set(1)
    of_run.about_to_set(1)
    assert of_run.take() == 1
    assert of_run.take() == 0


def test_what_is_set_at_once_counts_once() -> None:
    of_run = Updates()
    of_run.got(1, 2)
    of_run.about_to_set(1, 2, 3)
    of_run.about_to_set(2)
    assert of_run.take() == 1


def test_only_the_newest_are_remembered() -> None:
    of_run = Updates()
    for key in range(MOST_KEYS + 1):
        of_run.got(key)
    of_run.about_to_set(0)
    of_run.about_to_set(MOST_KEYS)
    assert of_run.take() == 1


def test_threads_set_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "PAUSES_S", Slow((0.001, 0.001)))
    of_run = Updates()
    for key in range(THREADS):
        of_run.got(key)
    start = threading.Barrier(THREADS)

    def set_one(key: int) -> None:
        start.wait(PATIENCE_S)
        of_run.about_to_set(key)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(set_one, range(THREADS)))
    assert of_run.take() == THREADS
