"""What a rank would have done, had messages come in another order, is tried out by copies of it: and only by them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist

from rankdrill import Plan, World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds import Outcome

DEADLINE_S = 60.0
EARLY_S = 30.0  # far below the deadline, for any machine
LATE_S = 0.3  # for one to come after the other on any machine
Body = Callable[..., Any]


def received(count: int = 3, like: torch.Tensor | None = None, group: Any = None) -> Iterator[torch.Tensor]:
    for _ in range(count):
        message = torch.zeros(2) if like is None else torch.zeros_like(like)
        dist.recv(message, group=group)
        yield message


def sent(value: float | None = None) -> int:
    dist.send(torch.full((2,), float(dist.get_rank()) if value is None else value), dst=0)
    return 0


# ------------------------------------------------------------------------------- where it matters


def the_first_counts() -> object:
    return next(each.tolist() for each in list(received())) if dist.get_rank() == 0 else sent()


def an_average_that_forgets() -> float:
    average = 0.0
    if dist.get_rank():
        sent()
    else:
        for each in received():
            average = 0.9 * average + 0.1 * each[0].item()
    return average


def a_sum_in_which_the_smallest_is_lost() -> float:
    total = torch.zeros(2)
    if dist.get_rank():
        sent({1: 1e8, 2: 1.0, 3: -1e8}[dist.get_rank()])
    else:
        for each in received():
            total += each
    return total[0].item()


def enough_is_enough() -> float:
    kept: list[float] = []
    if dist.get_rank():
        sent()
    else:
        for each in received():
            if len(kept) < 4:
                kept += each.tolist()
    return sum(kept)


class Numbered:
    def __init__(self) -> None:
        self.by_number: dict[str, float] = {}

    def add(self, value: float) -> None:
        self.by_number[f"worker {len(self.by_number)}"] = value


def numbered_as_they_come() -> dict[str, float]:
    book = Numbered()
    if dist.get_rank():
        sent()
    else:
        for each in received():
            book.add(each[0].item())
    return book.by_number


def posted_in_advance() -> float:
    if dist.get_rank():
        sent()
        return 0.0
    slots = torch.zeros(3, 2)
    for request in [dist.irecv(slot) for slot in slots]:
        assert request is not None
        request.wait()
    return float((slots[:, 0] * torch.tensor([1.0, 10.0, 100.0])).sum())


def told_in_a_collective() -> None:
    chosen = torch.zeros(2)
    if dist.get_rank():
        sent()
    else:
        chosen = next(iter(list(received())))
    dist.barrier()
    dist.all_reduce(torch.ones(1))
    dist.broadcast(chosen, src=0)


def right_by_luck() -> None:
    if dist.get_rank() == 0:
        values = [each[0].item() for each in received()]
        assert values == sorted(values)
    else:
        time.sleep(LATE_S * dist.get_rank())
        sent()


def among_the_ranks_of_a_group() -> float | None:
    group = dist.new_group([1, 2, 3])
    if dist.get_rank() == 3:
        return [each[0].item() for each in received(2, group=group)][-1]
    if dist.get_rank():
        dist.send(torch.full((2,), float(dist.get_rank())), dst=3, group=group)
    return None


def each_from_a_line_of_its_own() -> torch.Tensor | int:
    one, other, third = torch.zeros(2), torch.zeros(2), torch.zeros(2)
    if dist.get_rank():
        return sent()
    dist.recv(one)
    dist.recv(other)
    dist.recv(third)
    return one - other


MATTERS = (
    the_first_counts,
    each_from_a_line_of_its_own,
    an_average_that_forgets,
    a_sum_in_which_the_smallest_is_lost,
    enough_is_enough,
    numbered_as_they_come,
    posted_in_advance,
    told_in_a_collective,
    right_by_luck,
    among_the_ranks_of_a_group,
)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(4) as made:
        yield made


def name_of(body: object) -> str:
    return str(getattr(body, "__name__", body))


@pytest.mark.parametrize("body", MATTERS, ids=name_of)
def test_where_it_matters(world: World, body: Body) -> None:
    outcome = world.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    receiver = 3 if body is among_the_ranks_of_a_group else 0
    assert (finding.kind, finding.culprits) == (FindingKind.RACE, (receiver,))
    assert "had they come in another order" in str(finding)
    site = finding.sides[0].sites[0]
    assert site is not None
    assert site.file == __file__
    assert outcome.elapsed < EARLY_S


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (the_first_counts, "would have returned something else"),
        (told_in_a_collective, "would have given broadcast #2 on 'default' something else"),
        (right_by_luck, "would have raised AssertionError"),
    ],
    ids=name_of,
)
def test_it_is_said_what_would_have_been(world: World, body: Body, words: str) -> None:
    (finding,) = world.run(body, deadline=DEADLINE_S).findings
    assert f"rank 0 receives from anybody (tag 0), and {words}, had they come in another order" in str(finding)


# ------------------------------------------------------------------------------- where it does not


def added_up() -> int:
    return sum(int(each[0]) for each in received()) if dist.get_rank() == 0 else sent()


def added_up_in_floats() -> float:
    total = torch.zeros(2)
    if dist.get_rank():
        sent(0.1 * dist.get_rank())
    else:
        for each in received():
            total += each
    return total[0].item()


def kept_by_sender() -> dict[int, float]:
    found: dict[int, float] = {}
    message = torch.zeros(2)
    if dist.get_rank():
        sent()
    else:
        for _ in range(3):
            source = dist.recv(message)
            found[source] = message[0].item()
    return found


def the_largest() -> float:
    return max(each[0].item() for each in received()) if dist.get_rank() == 0 else sent()


def whoever_asks_is_given_work() -> int:
    task = torch.zeros(2)
    if dist.get_rank() == 0:
        for number in [*range(6), -1, -1, -1]:
            source = dist.recv(torch.zeros(2))
            dist.send(torch.full((2,), float(number)), dst=source)
        return 0
    done = -1
    while task[0] >= 0:
        sent()
        dist.recv(task, src=0)
        done += 1
    return done


def measured() -> list[float]:
    if dist.get_rank():
        sent()
        return []
    began = time.perf_counter()
    return [time.perf_counter() - began for _ in received()]


def drawn_at_random() -> float:
    if dist.get_rank():
        sent()
        return 0.0
    return sum(each[0].item() for each in received()) + torch.rand(1).item()


def one_waits_for_the_others() -> float | None:
    """Two may come first; the third has heard of both."""
    token = torch.zeros(1)
    if dist.get_rank() == 0:
        return [each[0].item() for each in received()][-1] * 0 + len("abc")
    for other in (1, 2) if dist.get_rank() == 3 else ():
        dist.recv(token, src=other, tag=1)
    sent()
    if dist.get_rank() < 3:
        dist.send(token, dst=3, tag=1)
    return None


def the_last_is_always_the_same() -> float | None:
    token = torch.zeros(1)
    if dist.get_rank() == 0:
        return [each[0].item() for each in received()][-1]
    for other in (1, 2) if dist.get_rank() == 3 else ():
        dist.recv(token, src=other, tag=1)
    sent()
    if dist.get_rank() < 3:
        dist.send(token, dst=3, tag=1)
    return None


def a_size_first_then_as_much() -> int:
    if dist.get_rank():
        sent()
        dist.send(torch.ones(dist.get_rank()), dst=0)
        return 0
    got = 0
    for _ in range(3):
        size = torch.zeros(2)
        source = dist.recv(size)
        rest = torch.zeros(int(size[0]))
        dist.recv(rest, src=source)
        got += rest.numel()
    return got


def in_a_second_thread() -> float:
    found: list[float] = []
    if dist.get_rank():
        sent()
        return 0.0
    thread = threading.Thread(target=lambda: found.extend(each[0].item() for each in received()))
    thread.start()
    thread.join()
    return len(found)


def with_a_thread_beside() -> float:
    stop = threading.Event()
    beside = threading.Thread(target=stop.wait)
    beside.start()
    try:
        if dist.get_rank():
            sent()
            return 0.0
        return sum(each[0].item() for each in received())
    finally:
        stop.set()
        beside.join()


def the_largest_of_a_line_each() -> torch.Tensor | int:
    one, other, third = torch.zeros(2), torch.zeros(2), torch.zeros(2)
    if dist.get_rank():
        return sent()
    dist.recv(one)
    dist.recv(other)
    dist.recv(third)
    return torch.stack([one, other, third]).amax()


NO_MATTER = (
    added_up,
    the_largest_of_a_line_each,
    added_up_in_floats,
    kept_by_sender,
    the_largest,
    whoever_asks_is_given_work,
    measured,
    drawn_at_random,
    one_waits_for_the_others,
    the_last_is_always_the_same,
    a_size_first_then_as_much,
    in_a_second_thread,
    with_a_thread_beside,
)


@pytest.mark.parametrize("body", NO_MATTER, ids=name_of)
def test_where_it_does_not(world: World, body: Body) -> None:
    outcome = world.run(body, deadline=DEADLINE_S)
    assert outcome.findings == ()
    assert outcome.ok, outcome.summary()
    assert outcome.elapsed < EARLY_S


# ------------------------------------------------------------------------------- what copies may not do


def writes_it_down(path: Path) -> int:
    if dist.get_rank():
        sent()
        return 0
    total = sum(int(each[0]) for each in received())
    with path.open("a") as file:
        file.write(f"{total}\n")
    return total


def writes_what_was_open(path: Path) -> int:
    if dist.get_rank():
        sent()
        return 0
    with path.open("a") as file:
        for each in received():
            file.write(f"{int(each[0])}\n")
            file.flush()
    return 0


def has_it_written(path: Path) -> int:
    if dist.get_rank():
        sent()
        return 0
    total = sum(int(each[0]) for each in received())
    subprocess.run([sys.executable, "-c", f"open({str(path)!r}, 'a').write('{total}\\n')"], check=True)
    return total


def sends_it_out(path: Path) -> int:
    if dist.get_rank():
        sent()
        return 0
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for each in received():
            ours.send(f"{int(each[0])}\n".encode())
        ours.shutdown(socket.SHUT_WR)
        path.write_bytes(b"".join(iter(lambda: theirs.recv(99), b"")))
    return 0


def counts_in_shared_memory(path: Path) -> int:
    if dist.get_rank():
        sent()
        return 0
    shared = torch.zeros(1).share_memory_()  # type: ignore[no-untyped-call]
    for _ in received():
        shared += 1
    path.write_text(f"{int(shared)}\n" * int(shared))
    return 0


OUTWARD: dict[Body, list[str]] = {
    writes_it_down: ["6"],
    writes_what_was_open: ["1", "2", "3"],
    has_it_written: ["6"],
    sends_it_out: ["1", "2", "3"],
    counts_in_shared_memory: ["3", "3", "3"],
}


@pytest.mark.parametrize("body", OUTWARD, ids=name_of)
def test_what_others_see_is_done_once(world: World, tmp_path: Path, body: Body) -> None:
    path = tmp_path / "seen"
    outcome = world.run(body, path, deadline=DEADLINE_S)
    assert outcome.ok, outcome.summary()
    assert sorted(path.read_text().split()) == OUTWARD[body]


def prints() -> None:
    if dist.get_rank():
        sent()
        return
    total = sum(int(each[0]) for each in received())
    print(f"together {total}")
    os.write(1, b"and so\n")


def test_what_is_printed_is_printed_once(world: World) -> None:
    outcome = world.run(prints, deadline=DEADLINE_S)
    assert outcome.ranks[0].stdout.split() == ["together", "6", "and", "so"]


def is_lost_in_another_order() -> float:
    if dist.get_rank():
        time.sleep(LATE_S * dist.get_rank())
        sent()
        return 0.0
    values = [each[0].item() for each in received()]
    while values != sorted(values):
        time.sleep(0.01)
    return sum(values)


def test_a_copy_that_comes_to_no_end_is_given_up(world: World) -> None:
    outcome = world.run(is_lost_in_another_order, deadline=DEADLINE_S)
    assert outcome.ok, outcome.summary()
    assert outcome.elapsed < EARLY_S


def children_of_rank_0() -> int:
    return len(psutil.Process().children(recursive=True)) if dist.get_rank() == 0 else 0


def test_ranks_are_kept_and_no_copy_is_left() -> None:
    with World(3) as world:
        before = world.run(os.getpid).unwrap()
        for body in (two_added_up, two_of_which_the_first_counts, two_added_up):
            world.run(body, deadline=DEADLINE_S)
            assert world.run(children_of_rank_0).unwrap() == [0, 0, 0]
            if body is two_added_up:
                assert world.run(os.getpid).unwrap() == before
            before = world.run(os.getpid).unwrap()


def two_added_up() -> int:
    return sum(int(each[0]) for each in received(2)) if dist.get_rank() == 0 else sent()


def two_of_which_the_first_counts() -> float:
    return next(each[0].item() for each in list(received(2))) if dist.get_rank() == 0 else sent()


def test_a_plan_may_do_as_it_likes() -> None:
    with World(3) as world:
        plan = Plan.parse("rank 1: delay(0.1) before collective.send #1")
        assert not world.run(two_of_which_the_first_counts, plan=plan, deadline=DEADLINE_S).findings


def test_nothing_is_tried_without_contracts() -> None:
    with World(3, contracts=False) as world:
        assert world.run(two_of_which_the_first_counts, deadline=DEADLINE_S).ok


def found_in(outcome: Outcome) -> bool:
    return bool(outcome.findings)


def test_the_same_is_found_each_time() -> None:
    with World(3) as world:
        assert all(found_in(world.run(two_of_which_the_first_counts, deadline=DEADLINE_S)) for _ in range(5))
