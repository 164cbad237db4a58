"""Ranks are kept while they behave, and each body finds them as it would find fresh ones."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job
from tests.worlds import bodies


def pids(world: World) -> list[int]:
    return world.run(os.getpid).unwrap()


def test_healthy_ranks_are_kept_and_pinned(two: World) -> None:
    assert pids(two) == pids(two)
    assert two.warm


def test_a_discarded_world_gets_fresh_ones(two: World) -> None:
    before = pids(two)
    two.discard()
    assert not two.warm
    assert set(pids(two)).isdisjoint(before)


def test_after_a_failure_they_are_fresh(two: World) -> None:
    before = pids(two)
    two.run(bodies.raise_needs_two)
    assert not two.warm
    assert set(pids(two)).isdisjoint(before)


def test_the_controllers_environment_is_taken_over(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def body() -> dict[str, str]:
        os.environ["LEFT_BEHIND"] = "1"
        return {name: value for name, value in os.environ.items() if name.startswith(("DRILL_", "LEFT_"))}

    monkeypatch.setenv("DRILL_ONE", "a")
    assert two.run(body).unwrap() == [{"DRILL_ONE": "a", "LEFT_BEHIND": "1"}] * 2
    monkeypatch.delenv("DRILL_ONE")
    monkeypatch.setenv("DRILL_TWO", "b")
    seen = two.run(lambda: {name for name in os.environ if name.startswith(("DRILL_", "LEFT_"))}).unwrap()
    assert seen == [{"DRILL_TWO"}] * 2


STATE = """
class PartialState:
    _shared_state = {}

class AcceleratorState:
    _shared_state = {}
"""


def test_what_accelerate_keeps_for_a_process_is_put_back(two: World, tmp_path: Path) -> None:
    """As `Accelerator()` does, which takes each rank to be alone where it finds no GPU."""
    (tmp_path / "accelerate").mkdir()
    (tmp_path / "accelerate" / "__init__.py").touch()
    (tmp_path / "accelerate" / "state.py").write_text(STATE)

    def body(number: int) -> list[dict[str, int]]:
        sys.path.insert(0, str(tmp_path))
        from accelerate import state  # type: ignore[import-not-found]

        kept = [state.PartialState._shared_state, state.AcceleratorState._shared_state]
        found = [dict(each) for each in kept]
        for each in kept:
            each["num_processes"] = number
        return found

    before = pids(two)
    assert [two.run(body, number).unwrap() for number in (1, 2)] == [[[{}, {}], [{}, {}]]] * 2
    assert pids(two) == before


MODELS = """
class _SerialModel:
    pass

class Native:
    pass

_model, _need_to_sync = _SerialModel(), True

def asks() -> bool:
    global _model, _need_to_sync
    alone = _need_to_sync and isinstance(_model, _SerialModel)
    _model, _need_to_sync = Native(), False
    return alone
"""


def test_what_ignite_has_found_out_is_forgotten(two: World, tmp_path: Path) -> None:
    """It asks once, in collectives: a test in which one rank alone asks it would pass after another one."""
    (tmp_path / "ignite" / "distributed").mkdir(parents=True)
    for package in (tmp_path / "ignite", tmp_path / "ignite" / "distributed"):
        (package / "__init__.py").touch()
    (tmp_path / "ignite" / "distributed" / "utils.py").write_text(MODELS)

    def body() -> list[bool]:
        sys.path.insert(0, str(tmp_path))
        from ignite.distributed import utils  # type: ignore[import-not-found]

        return [utils.asks(), utils.asks()]

    before = pids(two)
    assert [two.run(body).unwrap() for _ in range(3)] == [[[True, False]] * 2] * 3
    assert pids(two) == before


def test_ranks_know_who_they_are(two: World) -> None:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    seen = two.run(lambda: tuple(os.environ[name] for name in names)).unwrap()
    assert seen == [("0", "0", "2", "2"), ("1", "1", "2", "2")]


def test_the_controllers_directory_and_path_are_taken_over(
    two: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "found_here.py").write_text("ANSWER = 42\n")
    two.run(lambda: os.chdir("/"))
    monkeypatch.chdir(tmp_path)
    assert two.run(os.getcwd).unwrap() == [str(tmp_path)] * 2
    monkeypatch.syspath_prepend(str(tmp_path))
    assert two.run(lambda: __import__("found_here").ANSWER).unwrap() == [42] * 2
    monkeypatch.undo()
    assert two.run(lambda place: place in sys.path, str(tmp_path)).unwrap() == [False] * 2


def test_the_default_dtype_is_put_back(two: World) -> None:
    two.run(lambda: torch.set_default_dtype(torch.float64)).unwrap()
    assert two.warm
    assert two.run(lambda: str(torch.ones(1).dtype)).unwrap() == ["torch.float32"] * 2


def test_random_numbers_differ_between_ranks(two: World) -> None:
    import random

    for body in (lambda: random.getrandbits(64), lambda: int(__import__("numpy").random.randint(1 << 60))):
        one, other = two.run(body).unwrap()
        assert one != other


# ------------------------------------------------------------------------- worlds that are thrown away


@pytest.fixture
def unwatched() -> Iterator[World]:
    """Two ranks that are let do what they want."""
    with World(2, contracts=False) as world:
        yield world


def test_ranks_out_of_step_are_thrown_away(unwatched: World) -> None:
    def body() -> None:
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1), async_op=True)  # and nobody waits for it

    assert unwatched.run(body).ok
    assert not unwatched.warm
    assert unwatched.run(bodies.total).unwrap() == [1.0, 1.0]


def test_a_default_group_that_broke_is_thrown_away_even_if_the_ranks_are_in_step(two: World) -> None:
    def receive_what_nobody_sends() -> None:
        receive = dist.irecv(torch.zeros(1), src=1 - dist.get_rank())
        assert receive is not None
        receive.wait(timedelta(seconds=0.2))

    def body() -> None:
        with pytest.raises(RuntimeError):  # the first to give up closes the connection under the other
            receive_what_nobody_sends()

    assert two.run_job(Job(body, in_step=True)).ok
    assert two.run_job(Job(bodies.total, in_step=True)).unwrap() == [1.0, 1.0]


def test_a_message_that_nobody_received_is_not_left_for_the_next(unwatched: World) -> None:
    def body() -> None:
        if dist.get_rank() == 0:
            dist.isend(torch.full((1,), 13.0), dst=1)

    def following() -> float:
        tensor = torch.zeros(1)
        if dist.get_rank() == 0:
            dist.send(torch.full((1,), 7.0), dst=1)
        else:
            dist.recv(tensor, src=0)
        return float(tensor)

    assert unwatched.run(body).ok
    assert unwatched.run(following).unwrap() == [0.0, 7.0]


def test_a_group_that_was_destroyed(two: World) -> None:
    two.run(dist.destroy_process_group).unwrap()
    assert not two.warm
    assert two.run(bodies.total).unwrap() == [1.0, 1.0]


def test_ordinary_use_of_groups_keeps_the_world_warm(two: World) -> None:
    def body() -> None:
        group = dist.new_group()
        gathered: list[object] = [None] * 2
        dist.all_gather_object(gathered, {"rank": dist.get_rank()}, group=group)
        work = dist.all_reduce(torch.ones(3), async_op=True)
        assert work is not None
        work.wait()
        dist.barrier()
        if dist.get_rank() == 0:
            dist.send(torch.ones(1), dst=1)
        else:
            dist.recv(torch.ones(1))

    before = pids(two)
    two.run(body).unwrap()
    assert pids(two) == before


def test_ddp_keeps_the_world_warm(two: World) -> None:
    def body() -> float:
        from torch.nn.parallel import DistributedDataParallel

        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(4, 2))
        model(torch.full((3, 4), float(dist.get_rank()))).sum().backward()
        gradient = model.module.weight.grad
        assert gradient is not None
        return float(gradient.sum())

    before = pids(two)
    assert two.run(body).unwrap() == [12.0, 12.0]
    assert pids(two) == before


# ------------------------------------------------------------------------------------ several worlds


def test_two_worlds_at_once_and_sizes_apart() -> None:
    with World(2) as small, World(3) as large, World(1) as single:
        for _ in range(2):
            assert small.run(bodies.total).unwrap() == [1.0] * 2
            assert large.run(bodies.total).unwrap() == [3.0] * 3
            assert single.run(bodies.total).unwrap() == [0.0]
        small.run(lambda: os._exit(1))
        assert large.warm
        assert large.run(bodies.total).unwrap() == [3.0] * 3


def test_worlds_from_two_threads() -> None:
    got: dict[int, list[list[float]]] = {2: [], 3: []}

    def use(size: int) -> None:
        with World(size) as world:
            for turn in range(5):
                if turn == 2:
                    world.run(bodies.raise_needs_two)
                got[size].append(world.run(bodies.total).unwrap())

    threads = [threading.Thread(target=use, args=(size,)) for size in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert got == {2: [[1.0] * 2] * 5, 3: [[3.0] * 3] * 5}


def test_a_world_within_a_rank(two: World) -> None:
    def body() -> list[float]:
        with World(2) as inner:
            values: list[float] = inner.run(bodies.total).unwrap()
        return values

    assert two.run(body, deadline=120).unwrap() == [[1.0, 1.0]] * 2


def test_the_store_of_a_rank_has_nothing_in_it_that_was_left_in_the_run_before(two: World) -> None:
    def body(rank: RankContext) -> bool:
        there = rank.store.check(["port"])
        dist.barrier()
        rank.store.set("port", "1")
        return there

    for _ in range(2):
        assert two.run_job(Job(body, with_context=True), deadline=60).unwrap() == [False, False]
