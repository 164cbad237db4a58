"""Threads that Python did not start, and that have called it, as autograd's do for a device: nobody waits for them."""

from __future__ import annotations

import _thread
import threading
import time

from rankdrill import World


def test_a_thread_of_somebody_elses_is_not_waited_for(fresh: World) -> None:
    def body() -> bool:
        met = threading.Event()

        def of_a_library() -> None:
            threading.current_thread()  # from here on Python lists it
            met.set()
            time.sleep(60)

        _thread.start_new_thread(of_a_library, ())
        return met.wait(30)

    assert fresh.run(body, deadline=60).unwrap() == [True] * 4
    assert fresh.run(body, deadline=60).unwrap() == [True] * 4
