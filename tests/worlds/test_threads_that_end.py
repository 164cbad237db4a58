"""A thread of a rank ends by an exception, and with it the collectives that it was to make: the report says so."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.distributed as dist

from rankdrill import World

DEADLINE_S = 2.0


def prefetched_by_a_thread(sizes: dict[int, int]) -> None:
    sizes = dict(sizes) if dist.get_rank() == 1 else {0: 4, 1: 4}
    group = dist.new_group([0, 1])

    def fetch() -> None:
        for batch in range(2):
            dist.broadcast(torch.zeros(sizes[batch]), src=0, group=group)

    thread = threading.Thread(target=fetch, name="prefetch")
    thread.start()
    thread.join()
    dist.barrier()


def notes_of(world: World, sizes: dict[int, int]) -> list[str]:
    outcome = world.run(prefetched_by_a_thread, sizes, deadline=DEADLINE_S)
    return [note for rank in outcome.ranks for note in rank.notes]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_how_a_thread_ended_is_noted_with_its_line() -> None:
    with World(2) as world:
        (note,) = notes_of(world, {0: 4})
        assert note.startswith("rank 1: thread 'prefetch' ended by KeyError: 1, at ")
        assert note.endswith(" in fetch")


def test_not_of_a_run_before_and_not_where_all_went_well() -> None:
    with World(2) as world:
        assert notes_of(world, {0: 4})
        assert not notes_of(world, {0: 4, 1: 4})
        outcome = world.run(dist.barrier, deadline=DEADLINE_S)
        assert outcome.ok
