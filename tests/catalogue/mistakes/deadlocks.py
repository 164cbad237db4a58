"""Deadlock: ranks that wait for each other, in a circle."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from tests.catalogue.programs import Rank, mistake


@mistake("deadlock", ranks=2)
def both_receive_first(rank: Rank) -> None:
    mine, theirs = torch.ones(4), torch.zeros(4)
    other = 1 - rank.index
    dist.recv(theirs, src=other)  # culprit
    dist.send(mine, dst=other)


@mistake("deadlock", ranks=4)
def a_ring_in_which_all_send_first(rank: Rank) -> None:
    block = torch.ones(1 << 20)
    for _ in range(3):
        dist.send(block, dst=(rank.index + 1) % 4)  # culprit
        dist.recv(block, src=(rank.index - 1) % 4)


@mistake("deadlock", ranks=2)
def two_groups_in_two_orders(rank: Rank) -> None:
    losses, metrics = dist.new_group([0, 1]), dist.new_group([0, 1])
    value = torch.ones(1)
    for group in (losses, metrics) if rank.index == 0 else (metrics, losses):
        dist.all_reduce(value, group=group)  # culprit


@mistake("deadlock", between=(1, 2), ranks=4)
def overlapping_groups_in_two_orders(rank: Rank) -> None:
    lower, upper = dist.new_group([0, 1, 2]), dist.new_group([1, 2, 3])
    value = torch.ones(3)
    mine = {0: [lower], 1: [lower, upper], 2: [upper, lower], 3: [upper]}[rank.index]
    for group in mine:
        dist.all_reduce(value, group=group)  # culprit


@mistake("deadlock", ranks=3)
def three_pairs_in_a_circle(rank: Rank) -> None:
    pairs = [dist.new_group([0, 1]), dist.new_group([1, 2]), dist.new_group([0, 2])]
    value = torch.ones(2)
    dist.barrier()
    dist.all_reduce(value, group=pairs[rank.index])  # culprit
    dist.all_reduce(value, group=pairs[rank.index - 1])


@mistake("deadlock", ranks=2)
def a_message_behind_a_barrier(rank: Rank) -> None:
    report = torch.ones(2)
    if rank.index == 0:
        dist.recv(report, src=1)  # culprit
        dist.barrier()
    else:
        dist.barrier()  # culprit
        dist.send(report, dst=0)


@mistake("deadlock", ranks=2)
def a_key_behind_a_barrier(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.wait(["data/ready"])  # culprit
        dist.barrier()
    else:
        dist.barrier()  # culprit
        rank.store.set("data/ready", "yes")


@mistake("deadlock", culprits=(2,), ranks=3)
def groups_turned_round_in_the_fiftieth_step(rank: Rank) -> None:
    gradients, statistics = dist.new_group([0, 1, 2]), dist.new_group([0, 1, 2])
    for step in range(55):
        groups = [gradients, statistics]
        if step == 49 and rank.index == 2:
            groups.reverse()
        for group in groups:
            dist.all_reduce(torch.ones(2), group=group)  # culprit


@mistake("deadlock", between=(1, 2), ranks=4)
def a_stage_that_wants_the_gradient_first(rank: Rank) -> None:
    activation, gradient = torch.ones(8), torch.ones(8)
    if rank.index > 0:
        dist.recv(activation, src=rank.index - 1)  # culprit
    if rank.index == 1:
        dist.recv(gradient, src=2)  # culprit
    if rank.index < 3:
        dist.send(activation, dst=rank.index + 1)
    if rank.index < 3 and rank.index != 1:
        dist.recv(gradient, src=rank.index + 1)
    if rank.index > 0:
        dist.send(gradient, dst=rank.index - 1)


@mistake("deadlock", ranks=3)
def a_file_lock_held_in_a_barrier(rank: Rank) -> None:
    """Whoever has the lock waits for those that wait for the lock."""
    dist.barrier()
    with Path(__file__).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # culprit
        dist.barrier()  # culprit


@mistake("deadlock", between=(0, 3), ranks=6)
def leaders_and_their_followers(rank: Rank) -> None:
    """The leaders wait for each other, and the followers for them."""
    halves = [dist.new_group([0, 1, 2]), dist.new_group([3, 4, 5])]
    leaders = dist.new_group([0, 3])
    mine, news = halves[rank.index // 3], torch.ones(2)
    if rank.index == 0:
        dist.all_reduce(news, group=leaders)  # culprit
        dist.send(news, dst=3)
    if rank.index == 3:
        dist.recv(news, src=0)  # culprit
        dist.all_reduce(news, group=leaders)
    dist.broadcast(news, src=3 * (rank.index // 3), group=mine)


@mistake("deadlock", ranks=2)
def each_waits_for_the_others_key(rank: Rank) -> None:
    time.sleep(0.1 * rank.index)
    rank.store.get(f"address/{1 - rank.index}")  # culprit
    rank.store.set(f"address/{rank.index}", "127.0.0.1")
    dist.barrier()


@mistake("deadlock", culprits=(2,), also=("stuck rank",), ranks=4)
def a_lock_taken_twice(rank: Rank) -> None:
    lock = threading.Lock()
    lock.acquire()
    if rank.index == 2:
        lock.acquire()  # culprit
    lock.release()
    dist.barrier()


@mistake("deadlock", culprits=(1,), also=("stuck rank",), ranks=3)
def a_helper_takes_the_lock_again(rank: Rank) -> None:
    lock, seen = threading.Lock(), list[int]()

    def note(step: int) -> None:
        with lock:  # culprit
            seen.append(step)

    for step in range(4):
        if rank.index == 1 and step == 3:
            with lock:
                note(step)
        else:
            note(step)
        dist.all_reduce(torch.ones(1))


@mistake("deadlock", culprits=(0,), ranks=2)
def a_lock_held_in_a_collective(rank: Rank) -> None:
    """On one rank the saving thread cannot save as long as the loop waits, and the other waits for it to."""
    side, lock, saved = dist.new_group([0, 1]), threading.Lock(), torch.ones(3)

    def save() -> None:
        with lock:
            dist.broadcast(saved, src=1, group=side)

    saver = threading.Thread(target=save)
    if rank.index == 0:
        with lock:
            saver.start()
            dist.barrier()  # culprit
        saver.join()
    else:
        saver.start()
        saver.join()
        dist.barrier()


@mistake("deadlock", between=(0, 3), also=("call ordering",), ranks=4)
def shared_weights_before_or_after_the_norm(rank: Rank) -> None:
    """Those between call what one of the two has still before it, from a line of their own."""
    ends = dist.new_group([0, 3])

    def add_shared(grad: torch.Tensor) -> None:
        dist.all_reduce(grad, group=ends)  # culprit

    def add_norms(grad: torch.Tensor) -> None:
        dist.all_reduce(grad.square().sum())  # culprit

    grad = torch.ones(4)
    match rank.index:
        case 0:
            add_norms(grad)  # culprit
            add_shared(grad)  # culprit
        case 3:
            add_shared(grad)  # culprit
            add_norms(grad)  # culprit
        case _:
            add_norms(torch.ones(2))


@mistake("deadlock", ranks=6)
def all_pairs_listen_first(rank: Rank) -> None:
    """Three circles of two, for one reason."""
    theirs, partner = torch.zeros(2), rank.index ^ 1
    dist.all_reduce(torch.ones(2))
    dist.recv(theirs, src=partner)  # culprit
    dist.send(torch.ones(2), dst=partner)


@mistake("deadlock", between=(1, 2), also=("call ordering",), ranks=4)
def turned_round_for_one(rank: Rank) -> None:
    """What is to be done stands in one line, for all."""
    inner = dist.new_group([1, 2])
    near, far = torch.ones(2), torch.ones(3)
    todo = [lambda: dist.all_reduce(near, group=inner), lambda: dist.all_reduce(far)]  # culprit
    if rank.index in (0, 3):
        del todo[0]
    if rank.index == 1:
        todo.reverse()  # culprit
    for step in todo:
        step()  # culprit


@mistake("deadlock", between=(0, 1), also=("missing key",), ranks=3)
def each_waits_to_be_greeted(rank: Rank) -> None:
    def meet(own: str, other: str) -> None:
        rank.store.wait([other])  # culprit
        rank.store.set(own, "here")  # culprit

    if rank.index < 2:
        meet(f"hello/{rank.index}", f"hello/{1 - rank.index}")  # culprit


@mistake("deadlock", ranks=2)
def two_files_locked_in_two_orders(rank: Rank) -> None:
    files = [(rank.directory / name).open("w") for name in ("index", "data")]
    if rank.index == 1:
        files.reverse()
    with files[0], files[1]:
        fcntl.flock(files[0], fcntl.LOCK_EX)
        dist.barrier()
        fcntl.flock(files[1], fcntl.LOCK_EX)  # culprit
    dist.barrier()


@mistake("deadlock", ranks=3)
def three_shards_locked_in_a_circle(rank: Rank) -> None:
    """Each has its own shard, and wants to read the next one's."""
    mine, next_one = (rank.directory / f"shard-{(rank.index + by) % 3}" for by in range(2))
    with mine.open("w") as own:
        fcntl.flock(own, fcntl.LOCK_EX)
        dist.barrier()
        with next_one.open("r+") as other:
            fcntl.flock(other, fcntl.LOCK_EX)  # culprit
    dist.barrier()


@mistake("deadlock", also=("missing key",), ranks=3)
def on_the_weights_that_come_of_it(rank: Rank) -> None:
    """From the third version on whoever plays wants the weights that are made of what is played."""
    if rank.index == 0:
        rank.store.set("weights/0", "w0")
    for version in range(5):
        if rank.index == 0:
            played = [rank.store.get(f"played/{version}/{actor}") for actor in (1, 2)]  # culprit
            rank.store.set(f"weights/{version + 1}", str(played))
        else:
            weights = rank.store.get(f"weights/{version + (version > 2)}").decode()  # culprit
            rank.store.set(f"played/{version}/{rank.index}", weights)
    dist.barrier()


@mistake("deadlock", culprits=(0,), ranks=3, also=("call ordering",))
def its_phases_the_other_way_round(rank: Rank) -> None:
    energy, forces = dist.new_group([0, 1, 2]), dist.new_group([0, 1, 2])

    def sum_energy() -> None:
        dist.all_reduce(torch.ones(1), group=energy)

    def sum_forces() -> None:
        dist.all_reduce(torch.ones(3, 3), group=forces)  # culprit

    phases = [sum_energy, sum_forces]
    for step in range(2):
        if step == 1 and rank.index == 0:
            phases = phases[::-1]  # culprit
        for phase in phases:
            phase()  # culprit


@mistake("deadlock", culprits=(2,), ranks=4, also=("call ordering",))
def wants_its_part_before_all_are_there(rank: Rank) -> None:
    part = torch.zeros(2)
    if rank.index == 3:
        dist.barrier()
        for other in range(3):
            dist.send(torch.full((2,), float(other)), other)
    elif rank.index == 2:
        dist.recv(part, 3)  # culprit
        dist.barrier()  # culprit
    else:
        dist.barrier()
        dist.recv(part, 3)
    dist.all_reduce(part)


@mistake("deadlock", culprits=(1,), ranks=4, also=("call ordering",))
def reports_before_it_hands_in(rank: Rank) -> None:
    """In the second round rank 1 meets the others first, and hands in its result behind that."""
    result = torch.ones(4)
    for epoch in range(2):
        if rank.index == 3:
            for worker in range(3):
                dist.recv(result, worker)
            dist.barrier()
        elif rank.index == 1 and epoch == 1:  # culprit
            dist.barrier()  # culprit
            dist.send(result, 3)  # culprit
        else:
            dist.send(result, 3)
            dist.barrier()


@mistake("deadlock", culprits=(0,), ranks=3, also=("call ordering",))
def sums_with_one_part_still_to_come(rank: Rank) -> None:
    part, total = torch.zeros(2), torch.zeros(2)
    if rank.index == 1:
        for number in range(3):
            dist.send(torch.full((2,), float(number)), 0)
    if rank.index == 0:
        for _ in range(2):  # culprit
            dist.recv(part, 1)
            total += part
    dist.all_reduce(total)  # culprit
    if rank.index == 0:
        dist.recv(part, 1)  # culprit


@mistake("deadlock", culprits=(2,), ranks=4)
def takes_the_two_files_the_other_way_round(rank: Rank) -> None:
    """Rank 1 waits for the first of them, as rank 0 has taken it first."""
    names = ["weights.lock", "table.lock"]
    if rank.index == 2:
        names = names[::-1]
    opened = [(rank.directory / name).open("w") for name in names]
    dist.barrier()
    if rank.index != 3:
        for file in opened:
            fcntl.flock(file, fcntl.LOCK_EX)  # culprit
            time.sleep(0.2)
    for file in opened:
        file.close()
    dist.barrier()


@mistake("deadlock", culprits=(0,), ranks=3)
def builds_within_the_lock_what_others_read_within_it(rank: Rank) -> None:
    """All take the lock in one helper, each from a line of its own."""

    @contextmanager
    def locked() -> Iterator[None]:
        with (rank.directory / "words.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    words = rank.directory / "words.txt"
    if rank.index == 0:
        with locked():  # culprit
            words.write_text("a b c")
            rank.store.set("words", "there")
            dist.broadcast(torch.tensor([3]), 0)  # culprit
    else:
        rank.store.wait(["words"])
        with locked():
            size = torch.tensor([len(words.read_text().split())])
        dist.broadcast(size, 0)


@mistake("deadlock", culprits=(3,), ranks=4, also=("call ordering",))
def evaluates_its_pair_before_it_averages(rank: Rank) -> None:
    """Ranks 0 and 1 are in no pair, and go the way of rank 2."""
    pair = dist.new_group([2, 3])
    loss, score = torch.ones(2), torch.ones(3)
    if rank.index == 3:
        dist.all_reduce(score, group=pair)  # culprit
        dist.all_reduce(loss)
    else:
        dist.all_reduce(loss)  # culprit
        if rank.index == 2:
            dist.all_reduce(score, group=pair)


@mistake("deadlock", culprits=(0,), ranks=3)
def a_barrier_moved_into_the_lock(rank: Rank) -> None:
    """All take it at one line, and all come to a barrier: the others behind the lock."""
    if rank.index:
        rank.store.wait(["locked"])
    with (rank.directory / "data.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        rank.store.set("locked", "1")
        if rank.index == 0:
            dist.barrier()  # culprit
        fcntl.flock(file, fcntl.LOCK_UN)
    if rank.index:
        dist.barrier()


@mistake("deadlock", culprits=(2,), ranks=4, also=("call ordering",))
def wants_new_weights_before_it_reports(rank: Rank) -> None:
    """The others report, and get them then."""
    weights, serves = torch.zeros(4), 0

    def refresh() -> None:
        dist.recv(weights, serves)  # culprit

    def report() -> None:
        dist.all_reduce(torch.ones(2))  # culprit

    if rank.index == serves:
        report()
        for other in (1, 2, 3):
            dist.send(weights, other)
    elif rank.index == 2:  # culprit
        refresh()  # culprit
        report()  # culprit
    else:
        report()
        refresh()
