"""Keys and locks used as they should be, also where it looks as if they were not: nothing is wrong with any of them."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.elastic.utils import store as elastic

from tests.catalogue.programs import Rank, correct


@correct(ranks=3)
def turns_by_the_key_itself(rank: Rank) -> None:
    """Who gets its own number has the turn, and gives it on by setting the next."""
    if rank.index == 0:
        rank.store.set("turn", "0")
    for round_ in range(3):
        mine = 3 * round_ + rank.index
        while (turn := int(rank.store.get("turn"))) != mine:
            time.sleep(0.001)
        rank.store.set("turn", str(turn + 1))
    dist.barrier()


@correct(ranks=3)
def one_counts_and_all_read(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("epoch", "0")
    for _ in range(10):
        epoch = int(rank.store.get("epoch"))
        if rank.index == 0:
            rank.store.set("epoch", str(epoch + 1))
    dist.barrier()
    assert int(rank.store.get("epoch")) == 10
    dist.barrier()


@correct(ranks=3)
def counted_under_a_file_lock(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("seen", "0")
    dist.barrier()
    for _ in range(5):
        with (rank.directory / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            rank.store.set("seen", str(int(rank.store.get("seen")) + 1))
    dist.barrier()
    assert int(rank.store.get("seen")) == 15
    dist.barrier()


@correct(ranks=3)
def counted_under_a_lock_asked_for_again_and_again(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("seen", "0")
    dist.barrier()
    lock = os.open(rank.directory / "lock", os.O_CREAT | os.O_RDWR)
    while True:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            time.sleep(0.01)
    rank.store.set("seen", str(int(rank.store.get("seen")) + 1))
    os.close(lock)
    dist.barrier()
    assert int(rank.store.get("seen")) == 3
    dist.barrier()


@correct(ranks=3)
def counted_under_a_lock_in_the_store(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("seen", "0")
        rank.store.set("lock", "free")
    dist.barrier()
    for _ in range(3):
        while rank.store.compare_set("lock", "free", str(rank.index)).decode() != str(rank.index):
            time.sleep(0.002)
        rank.store.set("seen", str(int(rank.store.get("seen")) + 1))
        rank.store.set("lock", "free")
    dist.barrier()
    assert int(rank.store.get("seen")) == 9
    dist.barrier()


@correct(ranks=3)
def counted_by_whoever_has_the_ticket(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("seen", "0")
        rank.store.set("called/1", "yes")
    ticket = rank.store.add("tickets", 1)
    rank.store.wait([f"called/{ticket}"])
    rank.store.set("seen", str(int(rank.store.get("seen")) + ticket))
    rank.store.set(f"called/{ticket + 1}", "yes")
    dist.barrier()
    assert int(rank.store.get("seen")) == 6
    dist.barrier()


@correct(ranks=4)
def counted_in_and_set_back(rank: Rank) -> None:
    """One waits until all have come, and sets the counter back for the next round."""
    for _ in range(3):
        if rank.index == 0:
            while (come := int(rank.store.add("come", 0))) < 3:
                time.sleep(0.001)
            rank.store.set("come", str(come - 3))
        else:
            rank.store.add("come", 1)
        dist.barrier()


@correct(ranks=2)
def polled_and_set_back(rank: Rank) -> None:
    rank.store.add("items", 0)
    dist.barrier()
    if rank.index == 0:
        while int(rank.store.get("items")) < 5:
            time.sleep(0.001)
        rank.store.set("items", "0")
    else:
        for _ in range(5):
            rank.store.add("items", 1)
    dist.barrier()


@correct(ranks=4)
def all_publish_the_same(rank: Rank) -> None:
    rank.store.compare_set("config", "", "{}")
    dist.barrier()
    config = json.loads(rank.store.get("config"))
    config["lr"] = 0.1
    time.sleep(0.02)
    rank.store.set("config", json.dumps(config))
    dist.barrier()


@correct(ranks=3)
def each_its_own_key(rank: Rank) -> None:
    rank.store.set(f"beat/{rank.index}", "0")
    for _ in range(5):
        beat = int(rank.store.get(f"beat/{rank.index}"))
        rank.store.set(f"beat/{rank.index}", str(beat + 1))
        rank.store.get(f"beat/{(rank.index + 1) % 3}")
    dist.barrier()


@correct(ranks=3)
def each_says_where_it_is(rank: Rank) -> None:
    """They look at what was there before, and set what has nothing to do with it."""
    if rank.index == 0:
        rank.store.set("last seen", "nobody")
    dist.barrier()
    before = rank.store.get("last seen")
    assert before
    rank.store.set("last seen", f"rank {rank.index}")
    dist.barrier()


@correct(ranks=3)
def a_key_that_a_thread_sets(rank: Rank) -> None:
    setter = threading.Timer(1.0, rank.store.set, args=("loaded", "yes"))
    if rank.index == 2:
        setter.start()
    else:
        rank.store.wait(["loaded"])
    dist.barrier()


@correct(ranks=2)
def a_key_that_a_child_sets(rank: Rank) -> None:
    child = 0
    if rank.index == 1:
        child = os.fork()
        if child == 0:
            time.sleep(1.0)
            rank.store.set("built", "yes")
            os._exit(0)
    rank.store.wait(["built"])
    if child:
        os.waitpid(child, 0)
    dist.barrier()


@correct(ranks=2)
def a_thread_that_waits_for_the_end(rank: Rank) -> None:
    """Its wait is not the rank's."""
    watcher = threading.Thread(target=rank.store.wait, args=(["stop"],))
    watcher.start()
    for _ in range(3):
        time.sleep(0.3)
        dist.all_reduce(torch.ones(1))
    rank.store.set("stop", "yes")
    watcher.join()


@correct(ranks=3)
def keys_passed_round(rank: Rank) -> None:
    for lap in range(3):
        if rank.index > 0 or lap > 0:
            last = lap if rank.index > 0 else lap - 1
            rank.store.wait([f"token/{last}/{(rank.index - 1) % 3}"])
        time.sleep(0.05)
        rank.store.set(f"token/{lap}/{rank.index}", "yes")
    dist.barrier()


@correct(ranks=2)
def set_deleted_and_set_again(rank: Rank) -> None:
    for message in range(4):
        if rank.index == 0:
            rank.store.set("mail", str(message))
            rank.store.wait([f"taken/{message}"])
        else:
            assert int(rank.store.get("mail")) == message
            rank.store.delete_key("mail")
            rank.store.set(f"taken/{message}", "yes")
    dist.barrier()


@correct(ranks=4)
def the_elastic_agents_barrier(rank: Rank) -> None:
    time.sleep(0.2 * rank.index)
    elastic.barrier(rank.store, 4, "saved", barrier_timeout=60)
    everyones = elastic.synchronize(rank.store, str(rank.index).encode(), rank.index, 4, "rank", timeout=60)
    assert sorted(map(int, everyones)) == [0, 1, 2, 3]
    dist.barrier()


@correct(ranks=3)
def a_store_of_their_own(rank: Rank) -> None:
    port: list[Any] = [None]
    if rank.index == 0:
        store = dist.TCPStore("localhost", 0, None, True, wait_for_workers=False)
        port = [store.port]
    dist.broadcast_object_list(port, src=0)
    if rank.index != 0:
        store = dist.TCPStore("localhost", port[0], None, False)
    if rank.index == 1:
        time.sleep(1)
        store.set("weights", "1 2 3")
    assert store.get("weights") == b"1 2 3"
    dist.barrier()


@correct(ranks=3)
def whoever_finds_nothing_sets_what_all_would_set(rank: Rank) -> None:
    dist.barrier()
    if not rank.store.check(["world"]):
        rank.store.set("world", str(dist.get_world_size()))
    dist.barrier()
    assert int(rank.store.get("world")) == 3


@correct(ranks=3)
def each_checks_for_a_key_of_its_own(rank: Rank) -> None:
    if not rank.store.check([f"seen by {rank.index}"]):
        rank.store.set(f"seen by {rank.index}", str(rank.index))
    dist.barrier()


@correct(ranks=3)
def registered_by_helpers_in_turns(rank: Rank) -> None:
    def read(key: str) -> dict[str, int]:
        known: dict[str, int] = json.loads(rank.store.get(key))
        return known

    def write(key: str, value: dict[str, int]) -> None:
        rank.store.set(key, json.dumps(value))

    if rank.index == 0:
        rank.store.set("workers", "{}")
    dist.barrier()
    for turn in range(3):
        if turn == rank.index:
            workers = read("workers")
            workers[f"worker {rank.index}"] = 9000
            write("workers", workers)
        dist.barrier()
    assert len(read("workers")) == 3


@correct(ranks=3)
def registered_by_helpers_under_keys_of_their_own(rank: Rank) -> None:
    def changed(key: str, name: str) -> None:
        known = json.loads(rank.store.get(key))
        known[name] = 9000
        save(key, known)

    def save(key: str, value: dict[str, int]) -> None:
        rank.store.set(key, json.dumps(value))

    save(f"workers/{rank.index}", {})
    dist.barrier()
    for _ in range(3):
        changed(f"workers/{rank.index}", "mine")
    dist.barrier()


@correct(ranks=3)
def the_turn_comes_with_a_message(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("losses", "0")
    dist.barrier()
    if rank.index > 0:
        dist.recv(torch.zeros(1), src=rank.index - 1)
    losses = float(rank.store.get("losses"))
    rank.store.set("losses", str(losses + 0.5))
    if rank.index < 2:
        dist.send(torch.zeros(1), dst=rank.index + 1)
    dist.barrier()
    assert float(rank.store.get("losses")) == 1.5
    dist.barrier()


@correct(ranks=3)
def the_turn_comes_with_a_key(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("losses", "0")
    dist.barrier()
    if rank.index > 0:
        rank.store.wait([f"added by {rank.index - 1}"])
    losses = float(rank.store.get("losses"))
    rank.store.set("losses", str(losses + 0.5))
    rank.store.set(f"added by {rank.index}", "yes")
    dist.barrier()
    assert float(rank.store.get("losses")) == 1.5
    dist.barrier()


@correct(ranks=3)
def whoever_is_named_names_the_next(rank: Rank) -> None:
    """Each looks once, when its time has come; the value says whose turn it is."""
    if rank.index == 0:
        rank.store.set("next", "0")
    dist.barrier()
    time.sleep(0.3 * rank.index)
    turn = int(rank.store.get("next"))
    if turn == rank.index:
        rank.store.set("next", str(turn + 1))
    dist.barrier()


@correct(ranks=2)
def each_writes_what_it_knows_by_a_helper(rank: Rank) -> None:
    """What is set has nothing to do with what was got, but goes through the same helpers."""

    def read(key: str) -> str:
        return str(rank.store.get(key))

    def write(key: str, value: str, note: str) -> None:
        assert note
        rank.store.set(key, value)

    if rank.index == 0:
        rank.store.set("last seen", "nobody")
    dist.barrier()
    before = read("last seen")
    write("last seen", f"rank {rank.index}", note=before)
    dist.barrier()


@correct(ranks=3)
def spelled_alike_and_each_its_own(rank: Rank) -> None:
    """Keys that differ in zeros, case or a letter; one of them nobody gets, and one comes late."""
    rank.store.set(f"ready/0{rank.index}", "yes")
    if rank.index == 1:
        rank.store.set("Ready/2", "nobody asks")
        rank.store.set("raedy/2", "nobody asks")
    if rank.index == 2:
        time.sleep(0.5)
    rank.store.set(f"ready/{rank.index}", "yes")
    rank.store.wait([f"ready/{other}" for other in range(3)])
    dist.barrier()


@correct(ranks=3)
def some_pad_and_all_know(rank: Rank) -> None:
    def name(other: int) -> str:
        return f"port/{other:02d}" if other == 2 else f"port/{other}"

    rank.store.set(name(rank.index), str(9000 + rank.index))
    ports = [int(rank.store.get(name(other))) for other in range(3)]
    assert ports == [9000, 9001, 9002]
    dist.barrier()


@correct(ranks=3)
def leaves_and_another_one_publishes(rank: Rank) -> None:
    def publish() -> bool:
        if not (rank.directory / "tokenizer.json").exists():
            return False
        rank.store.set("tokenizer", "from the file")
        return True

    if rank.index == 0:
        publish()
    else:
        if rank.index == 1:
            time.sleep(0.5)
            rank.store.compare_set("tokenizer", "", "built in")
        assert rank.store.get("tokenizer")


@correct(ranks=3)
def leaves_and_its_thread_publishes(rank: Rank) -> None:
    def publish() -> None:
        rank.store.set("tokenizer", "a b c")

    if rank.index == 0:
        threading.Timer(0.5, publish).start()
    else:
        assert rank.store.get("tokenizer")


@correct(ranks=4)
def taken_away_by_the_last_reader(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("plan", "a b c")
    assert rank.store.get("plan")
    if rank.store.add("readers", 1) == 4:
        rank.store.delete_key("plan")
    dist.barrier()


@correct(ranks=2)
def the_turn_comes_by_a_socket(rank: Rank) -> None:
    """Which is no step."""
    server = socket.create_server(("127.0.0.1", 0))
    ports: list[Any] = [None, None]
    dist.all_gather_object(ports, server.getsockname()[1])
    if rank.index == 0:
        rank.store.set("losses", "0")
    dist.barrier()
    if rank.index == 1:
        server.accept()[0].recv(1)
    losses = float(rank.store.get("losses"))
    rank.store.set("losses", str(losses + 0.5))
    if rank.index == 0:
        socket.create_connection(("127.0.0.1", ports[1])).sendall(b"1")
    dist.barrier()
    assert float(rank.store.get("losses")) == 1.0
    server.close()


@correct(ranks=2)
def the_turn_comes_with_what_was_asked_for_before(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("losses", "0")
    request = dist.irecv(torch.zeros(1), src=0) if rank.index == 1 else None
    dist.barrier()
    if request is not None:
        request.wait()
    losses = float(rank.store.get("losses"))
    rank.store.set("losses", str(losses + 0.5))
    if rank.index == 0:
        dist.send(torch.zeros(1), dst=1)
    dist.barrier()
    assert float(rank.store.get("losses")) == 1.0


@correct(ranks=3)
def all_count_the_generation_on_together(rank: Rank) -> None:
    """All got it before they met, and all set it to the same."""
    if rank.index == 0:
        rank.store.set("generation", "7")
    dist.barrier()
    generation = int(rank.store.get("generation"))
    dist.barrier()
    rank.store.set("generation", str(generation + 1))
    dist.barrier()
    assert int(rank.store.get("generation")) == 8


@correct(ranks=4)
def all_swap_until_it_is_theirs(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("present", "nobody")
    dist.barrier()
    while True:
        seen = rank.store.get("present").decode()
        entered = f"{seen} {rank.index}"
        if rank.store.compare_set("present", seen, entered).decode() == entered:
            break
    dist.barrier()
    assert sorted(rank.store.get("present").decode().split()) == ["0", "1", "2", "3", "nobody"]


@correct(ranks=3)
def who_holds_it_gives_it_back_plainly(rank: Rank) -> None:
    """Of a lock made of one key only its holder sets it; that others try meanwhile is nothing to it."""
    if rank.index == 0:
        rank.store.set("lock", "free")
    dist.barrier()
    for _ in range(3):
        while rank.store.compare_set("lock", "free", str(rank.index)) != str(rank.index).encode():
            time.sleep(0.01)
        assert rank.store.get("lock") == str(rank.index).encode()
        rank.store.set("lock", "free")
    dist.barrier()


@correct(ranks=3)
def told_of_each_model_better_or_not(rank: Rank) -> None:
    best = 9.0
    for epoch, loss in enumerate([0.8, 0.5, 0.6, 0.4]):
        worst = torch.tensor([loss])
        dist.all_reduce(worst, dist.ReduceOp.MAX)
        if rank.index:
            rank.store.wait([f"model/{epoch}"])
        else:
            best = min(best, float(worst))
            rank.store.set(f"model/{epoch}", str(best))


@correct(ranks=3)
def stand_for_election_by_a_swap(rank: Rank) -> None:
    """Whose swap has failed looks at the key behind the barrier."""
    if rank.index == 0:
        rank.store.set("leader", "the one before")
    dist.barrier()
    before = rank.store.get("leader").decode()
    rank.store.compare_set("leader", before, str(rank.index))
    dist.barrier()
    assert rank.store.get("leader").decode() in {"0", "1", "2"}


@correct(ranks=3)
def swap_and_look_at_the_key_itself(rank: Rank) -> None:
    """What comes back is dropped; the key says whether it was one's own turn."""
    if rank.index == 0:
        rank.store.set("done", "")
        rank.store.set("done", "-")
    dist.barrier()
    mine = f"{rank.index};"
    for _ in range(99):
        seen = rank.store.get("done").decode()
        rank.store.compare_set("done", seen, seen + mine)
        now = rank.store.get("done").decode()
        if mine in now:
            break
    dist.barrier()
    assert len(rank.store.get("done")) == 7


@correct(ranks=3)
def all_mark_the_same_stage(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("stage", "1")
    dist.barrier()
    stage = int(rank.store.get("stage"))
    rank.store.compare_set("stage", str(stage), str(stage + 1))
    dist.barrier()


@correct(ranks=4)
def whoever_is_first_writes_the_head(rank: Rank) -> None:
    """All look without the lock, and once more when they have it."""
    file = rank.directory / "table.csv"
    dist.barrier()
    if not file.exists():
        with (rank.directory / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                file.write_text("rank,loss\n")
            fcntl.flock(lock, fcntl.LOCK_UN)
    dist.barrier()
    assert file.read_text() == "rank,loss\n"
