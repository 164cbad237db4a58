"""Exceptions that nobody sees, of threads and on the way out of a block: the report of what hangs tells of them."""

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
        assert note.startswith("rank 1: thread 'prefetch' ended by KeyError: 1, raised at ")
        assert note.endswith(" in fetch")


def test_not_of_a_run_before_and_not_where_all_went_well() -> None:
    with World(2) as world:
        assert notes_of(world, {0: 4})
        assert not notes_of(world, {0: 4, 1: 4})
        outcome = world.run(dist.barrier, deadline=DEADLINE_S)
        assert outcome.ok


def syncs_on_its_way_out() -> None:
    try:
        if dist.get_rank() == 1:
            raise ValueError("label 12 is out of range")
        dist.all_reduce(torch.ones(2))
    finally:
        dist.barrier()


def test_what_a_rank_was_handling_when_it_called_a_collective_is_noted() -> None:
    with World(3) as world:
        outcome = world.run(syncs_on_its_way_out, deadline=DEADLINE_S)
        (note,) = [note for rank in outcome.ranks for note in rank.notes]
        assert note.startswith("rank 1: it handled ValueError: label 12 is out of range, raised at ")
        assert "when it called barrier #0 on 'default', at " in note


def recovers() -> None:
    for _ in range(3):
        try:
            raise OSError("once more")
        except OSError:
            dist.barrier()


def test_who_handles_errors_together_is_left_alone() -> None:
    with World(2) as world:
        outcome = world.run(recovers, deadline=DEADLINE_S)
        assert outcome.ok
        assert not any(rank.notes for rank in outcome.ranks)


class UnshownError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not to be shown")


def handles_what_cannot_be_shown() -> int:
    try:
        raise UnshownError
    except UnshownError:
        total = torch.ones(1)
        dist.all_reduce(total)
        return int(total)


def test_an_exception_that_does_not_let_itself_be_shown_disturbs_nobody() -> None:
    with World(2) as world:
        assert world.run(handles_what_cannot_be_shown, deadline=DEADLINE_S).unwrap() == [2, 2]


def loses_its_reducer() -> None:
    """Its thread dies of what nobody is told: the hook is the program's own."""

    def reduces() -> None:
        if dist.get_rank() == 1:
            raise KeyError("no batch")  # dies
        dist.all_reduce(torch.ones(1))

    threading.excepthook = lambda ended: None
    reducer = threading.Thread(target=reduces, name="reducer")
    reducer.start()
    reducer.join()


def test_the_error_that_ended_a_thread_is_told_with_the_call_that_it_did_not_make() -> None:
    with World(3) as world:
        outcome = world.run(loses_its_reducer, deadline=60)
    (finding,) = outcome.findings
    assert finding.culprits == (1,)
    assert "its thread 'reducer' ended by KeyError: 'no batch'" in finding.lines[0]
    line = loses_its_reducer.__code__.co_firstlineno + 5
    assert f"test_unseen_exceptions.py:{line} in reduces" in finding.lines[0]
    assert "goes past it by" not in str(finding)
