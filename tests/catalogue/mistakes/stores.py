"""The store: keys that nobody sets, and updates that get lost."""

from __future__ import annotations

import fcntl
import json
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from tests.catalogue.programs import Rank, mistake


@mistake("missing key", culprits=(2,), ranks=3)
def the_neighbour_of_the_last(rank: Rank) -> None:
    rank.store.set(f"port/{rank.index}", str(29500 + rank.index))
    neighbour = rank.store.get(f"port/{rank.index + 1}")  # culprit
    assert int(neighbour) > 0
    dist.barrier()


@mistake("missing key", culprits=(1,), ranks=4)
def one_does_not_register(rank: Rank) -> None:
    if rank.index != 1:  # culprit
        rank.store.set(f"host/{rank.index}", "localhost")  # culprit
    hosts = [rank.store.get(f"host/{other}") for other in range(4)]  # culprit
    assert len(hosts) == 4


@mistake("missing key", culprits=(2,), ranks=3)
def spelled_in_another_way(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("weights_ready", "1")
    elif rank.index == 1:
        rank.store.wait(["weights_ready"])
    else:
        rank.store.wait(["weights-ready"])  # culprit
    dist.barrier()


@mistake("missing key", culprits=(2,), ranks=3)
def looked_for_under_another_prefix(rank: Rank) -> None:
    cache = dist.PrefixStore("cache2" if rank.index == 2 else "cache", rank.store)
    if rank.index == 0:
        cache.set("vocabulary", "a b c")
    words = cache.get("vocabulary")  # culprit
    assert words
    dist.barrier()


@mistake("missing key", culprits=(1,), ranks=3)
def of_the_step_after_the_last(rank: Rank) -> None:
    for step in range(50):
        if rank.index == 0:
            rank.store.set(f"step/{step}", "done")
        elif rank.index == 2:
            rank.store.wait([f"step/{step}"])
        else:
            rank.store.wait([f"step/{step + 1}"])  # culprit
    dist.barrier()


@mistake("lost update", culprits=(0, 1), ranks=2)
def counts_by_get_and_set(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("seen", "0")
    dist.barrier()
    for _ in range(20):
        seen = int(rank.store.get("seen"))  # culprit
        rank.store.set("seen", str(seen + 1))  # culprit
    dist.barrier()


@mistake("lost update", culprits=(0, 1, 2, 3), ranks=4)
def keeps_the_best_score(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("best", "0")
    dist.barrier()
    mine = 10 * rank.index
    if mine >= int(rank.store.get("best")):  # culprit
        time.sleep(0.05)
        rank.store.set("best", str(mine))  # culprit
    dist.barrier()


@mistake("lost update", culprits=(0, 1, 2), ranks=3)
def appends_to_a_list(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("finished", "[]")
    dist.barrier()
    finished = json.loads(rank.store.get("finished"))  # culprit
    finished.append(rank.index)
    rank.store.set("finished", json.dumps(finished))  # culprit
    dist.barrier()


@mistake("lost update", culprits=(1,), ranks=3)
def the_one_that_does_not_add(rank: Rank) -> None:
    """The others use the store's own counter."""
    rank.store.add("samples", 0)
    dist.barrier()
    for _ in range(10):
        if rank.index == 1:
            known = int(rank.store.get("samples"))  # culprit
            rank.store.set("samples", str(known + 8))  # culprit
        else:
            rank.store.add("samples", 8)
    dist.barrier()


@mistake("lost update", culprits=(0, 1, 2), ranks=3)
def each_finds_no_leader_and_becomes_it(rank: Rank) -> None:
    dist.barrier()
    if not rank.store.check(["leader"]):  # culprit
        rank.store.set("leader", f"rank {rank.index}")  # culprit
    rank.store.get("leader")


@mistake("lost update", culprits=(0, 1, 2, 3), ranks=4)
def registers_by_helpers(rank: Rank) -> None:
    def read(key: str) -> dict[str, int]:
        known: dict[str, int] = json.loads(rank.store.get(key))  # culprit
        return known

    def write(key: str, value: dict[str, int]) -> None:
        rank.store.set(key, json.dumps(value))  # culprit

    if rank.index == 0:
        rank.store.set("workers", "{}")
    dist.barrier()
    workers = read("workers")  # culprit
    workers[f"worker {rank.index}"] = 9000 + rank.index
    write("workers", workers)  # culprit
    dist.barrier()


@mistake("lost update", culprits=(0, 1, 2), ranks=3)
def adds_its_loss_and_is_lucky(rank: Rank) -> None:
    """They come one after the other, but nothing makes them."""
    if rank.index == 0:
        rank.store.set("losses", "0")
    dist.barrier()
    time.sleep(0.3 * rank.index)
    losses = float(rank.store.get("losses"))  # culprit
    rank.store.set("losses", str(losses + 0.5))  # culprit
    dist.barrier()


@mistake("missing key", culprits=(2,), ranks=4)
def one_pads_its_number(rank: Rank) -> None:
    number = f"{rank.index:02d}" if rank.index == 2 else str(rank.index)  # culprit
    rank.store.set(f"ready/{number}", "yes")  # culprit
    rank.store.wait([f"ready/{other}" for other in range(4)])
    dist.barrier()


@mistake("missing key", culprits=(1,), ranks=3)
def writes_another_case_than_all_read(rank: Rank) -> None:
    if rank.index == 1:
        rank.store.set("Vocabulary_Size", "32000")  # culprit
    size = int(rank.store.get("vocabulary_size"))
    assert size
    dist.barrier()


@mistake("missing key", culprits=(0,), ranks=3)
def leaves_before_it_publishes(rank: Rank) -> None:
    def publish() -> None:
        if not (rank.directory / "tokenizer.json").exists():
            return  # culprit
        rank.store.set("tokenizer", "a b c")  # culprit

    if rank.index == 0:
        publish()  # culprit
    else:
        assert rank.store.get("tokenizer")


@mistake("missing key", culprits=(0,), ranks=4)
def goes_on_without_publishing(rank: Rank) -> None:
    if rank.index == 0 and (rank.directory / "vocabulary").exists():  # culprit
        rank.store.set("vocabulary", "a b c")  # culprit
    if rank.index != 0:
        assert rank.store.get("vocabulary")
    dist.barrier()  # culprit


@mistake("missing key", culprits=(1,), ranks=4)
def taken_away_by_the_first_reader(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("plan", "a b c")
    if rank.index > 1:
        time.sleep(0.3)
    if rank.index > 0:
        assert rank.store.get("plan")
    if rank.index == 1:
        rank.store.delete_key("plan")  # culprit
    dist.barrier()


@mistake("missing key", culprits=(3,), ranks=4)
def two_under_one_number(rank: Rank) -> None:
    """Two nodes of two: the last one says its number on its node."""
    number = rank.index - 2 if rank.index == 3 else rank.index  # culprit
    rank.store.set(f"port/{number}", str(29500 + rank.index))  # culprit
    for peer in range(rank.world_size):
        rank.store.get(f"port/{peer}")
    dist.barrier()


@mistake("missing key", culprits=(2,), ranks=4)
def one_more_than_there_are(rank: Rank) -> None:
    rank.store.set(f"loaded/{rank.index}", "1")
    if rank.index == 2:
        for other in range(rank.world_size + 1):  # culprit
            rank.store.wait([f"loaded/{other}"])  # culprit
    dist.barrier()


@mistake("missing key", culprits=(0,), ranks=3)
def cleared_before_the_last_has_read_it(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("seed", "7")
    if rank.index == 1:
        rank.store.get("seed")
    dist.barrier()
    if rank.index == 0:
        rank.store.delete_key("seed")  # culprit
    dist.barrier()
    if rank.index == 2:
        rank.store.get("seed")


class _Seen:
    """How many samples all have seen, as it is in the store."""

    def __init__(self, rank: Rank) -> None:
        self.store = rank.store
        if rank.index == 0:
            self.store.set("seen", "0")
        dist.barrier()

    @property
    def samples(self) -> int:
        return int(self.store.get("seen"))  # culprit

    @samples.setter
    def samples(self, value: int) -> None:
        self.store.set("seen", str(value))  # culprit


@mistake("lost update", culprits=(0, 1, 2), ranks=3)
def counted_by_a_property(rank: Rank) -> None:
    seen = _Seen(rank)
    for _ in range(4):
        seen.samples += 8  # culprit
    dist.barrier()


@mistake("lost update", culprits=(2,), ranks=3)
def one_does_not_take_the_lock(rank: Rank) -> None:
    def guarded(amount: int) -> None:
        mine = str(rank.index)
        while rank.index != 2 and rank.store.compare_set("lock", "", mine) != mine.encode():  # culprit
            time.sleep(0.001)
        total = int(rank.store.get("total"))  # culprit
        time.sleep(0.01)
        rank.store.set("total", str(total + amount))  # culprit
        if rank.index != 2:  # culprit
            rank.store.delete_key("lock")

    if rank.index == 0:
        rank.store.set("total", "0")
    dist.barrier()
    for amount in range(1, 4):
        guarded(amount)
    dist.barrier()


@mistake("missing key", culprits=(0,), ranks=3)
def collects_from_a_rank_that_there_is_not(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.wait([f"ready/{worker}" for worker in range(1, rank.world_size + 1)])  # culprit
    else:
        rank.store.set(f"ready/{rank.index}", "yes")
    dist.barrier()


@mistake("lost update", culprits=(1, 3), ranks=4)
def two_sign_in_at_once(rank: Rank) -> None:
    """They meet between the two, and each goes on from what was there before."""
    odd = dist.new_group([1, 3])
    if rank.index == 0:
        rank.store.set("present", "")
    dist.barrier()
    if rank.index % 2:
        present = rank.store.get("present").decode()  # culprit
        dist.all_reduce(torch.ones(1), group=odd)
        rank.store.set("present", f"{present} {rank.index}")  # culprit
    dist.barrier()


@mistake("lost update", culprits=(1,), ranks=3)
def writes_plainly_what_the_others_swap(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("done", "none")
    dist.barrier()
    names = rank.store.get("done").decode() if rank.index == 1 else ""  # culprit
    if rank.index == 1:
        time.sleep(0.4)  # looks them all up
        rank.store.set("done", f"{names} 1")  # culprit
    else:
        time.sleep(0.1)
        while True:
            seen = rank.store.get("done").decode()
            more = f"{seen} {rank.index}"
            if rank.store.compare_set("done", seen, more).decode() == more:
                break
    dist.barrier()


@mistake("missing key", culprits=(0,), ranks=4)
def announces_one_file_more_than_it_lists(rank: Rank) -> None:
    files = [f"part-{number}.parquet" for number in range(7)]
    if rank.index == 0:
        rank.store.set("files", str(len(files)))
        for number, name in enumerate(files[1:]):  # culprit
            rank.store.set(f"file/{number}", name)  # culprit
    else:
        many = int(rank.store.get("files"))
        while (number := rank.store.add("drawn", 1) - 1) < many:
            rank.store.get(f"file/{number}")
    dist.barrier()  # culprit


@mistake("missing key", culprits=(2,), ranks=4)
def tidies_up_before_the_next_epoch_reads_it(rank: Rank) -> None:
    if rank.index == 1:
        rank.store.set("schedule", "warm-up")
    for epoch in range(2):
        dist.barrier()
        if epoch == 0 and rank.index == 2:
            assert rank.store.get("schedule") == b"warm-up"
            rank.store.delete_key("schedule")  # culprit
        if epoch == 1 and rank.index == 3:
            rank.store.get("schedule")
    dist.barrier()


@mistake("lost update", culprits=(0, 1), ranks=2)
def counts_in_a_file(rank: Rank) -> None:
    file = rank.directory / "seen.txt"
    if rank.index == 0:
        file.write_text("0")
    dist.barrier()
    seen = int(file.read_text())  # culprit
    dist.all_reduce(torch.ones(1))
    file.write_text(str(seen + rank.index + 1))  # culprit
    dist.barrier()


@mistake("lost update", culprits=(0, 1, 2), ranks=3)
def merges_its_results_into_a_file(rank: Rank) -> None:
    """Each puts the file in its place in one go, which makes it whole, and does not make it complete."""
    file = rank.directory / "results.json"
    if rank.index == 0:
        file.write_text("{}")
    dist.barrier()
    results = json.loads(file.read_text())  # culprit
    dist.all_reduce(torch.ones(4))
    results[f"rank {rank.index}"] = 0.5 + rank.index
    aside = file.with_suffix(f".{rank.index}")
    aside.write_text(json.dumps(results))
    aside.replace(file)  # culprit
    dist.barrier()


@mistake("lost update", culprits=(0, 1, 2, 3), ranks=4)
def signs_the_manifest(rank: Rank) -> None:
    file = rank.directory / "manifest.txt"
    if rank.index == 0:
        file.touch()
    for shard in range(3):
        dist.barrier()
        with file.open() as manifest:  # culprit
            lines = manifest.readlines()
        dist.all_gather_object([None] * 4, len(lines))
        lines.append(f"shard {shard} of rank {rank.index}\n")
        with file.open("w") as manifest:  # culprit
            manifest.writelines(lines)
    dist.barrier()


@mistake("missing key", culprits=(0,), ranks=3)
def told_of_a_better_model_only(rank: Rank) -> None:
    best = 9.0
    for epoch, loss in enumerate([0.8, 0.5, 0.6, 0.4]):
        worst = torch.tensor([loss])
        dist.all_reduce(worst, dist.ReduceOp.MAX)
        if rank.index:
            rank.store.wait([f"model/{epoch}"])
        elif float(worst) < best:  # culprit
            best = float(worst)
            rank.store.set(f"model/{epoch}", "saved")  # culprit


@mistake("missing key", culprits=(1,), ranks=4)
def asks_in_a_form_of_its_own(rank: Rank) -> None:
    """Padded with zeros, which nobody's keys are."""
    rank.store.set(f"shard/{rank.index}/size", str(rank.index))
    dist.barrier()
    next_one = (rank.index + 1) % 4
    form = "shard/{:03d}/size" if rank.index == 1 else "shard/{}/size"
    assert int(rank.store.get(form.format(next_one))) == next_one  # culprit
    dist.barrier()


@mistake("missing key", culprits=(3,), ranks=4)
def threads_look_up_all_peers(rank: Rank) -> None:
    name = "peers/3/addr" if rank.index == 3 else f"peers/{rank.index}/address"
    rank.store.set(name, f"10.0.0.{rank.index}")  # culprit
    found: dict[int, bytes] = {}

    def look_up(peer: int) -> None:
        found[peer] = rank.store.get(f"peers/{peer}/address")

    threads = [threading.Thread(target=look_up, args=(peer,), daemon=True) for peer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    dist.barrier()


@mistake("lost update", culprits=(1, 2), ranks=3)
def members_are_missed_by_a_check(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("members", "[]")
    dist.barrier()
    if rank.index:
        members = json.loads(rank.store.get("members"))  # culprit
        time.sleep(0.05)
        members.append(rank.index)
        rank.store.set("members", json.dumps(members))  # culprit
    dist.barrier()
    assert sorted(json.loads(rank.store.get("members"))) == [1, 2]


@mistake("missing key", culprits=(3,), also=("missing call",), ranks=4)
def goes_home_before_the_second_count(rank: Rank) -> None:
    """The last of all that count themselves opens the gate."""
    shards = range(rank.index, 3, 4)

    def arrive(phase: str) -> None:
        if rank.store.add(f"{phase}/here", 1) == 4:  # culprit
            rank.store.set(f"{phase}/open", "yes")  # culprit
        rank.store.wait([f"{phase}/open"])

    arrive("loaded")
    if not shards:
        return
    arrive("written")


@mistake("missing key", culprits=(1,), ranks=3)
def names_its_key_the_other_way_round(rank: Rank) -> None:
    for epoch in range(4):
        if rank.index == 1 and epoch == 3:
            rank.store.set(f"shard/{rank.index}/{epoch}", "done")  # culprit
        else:
            rank.store.set(f"shard/{epoch}/{rank.index}", "done")
        if rank.index == 0:
            rank.store.wait([f"shard/{epoch}/{peer}" for peer in range(3)])
            rank.store.set(f"merged/{epoch}", "yes")
        rank.store.wait([f"merged/{epoch}"])


@mistake("lost update", culprits=(1, 2), ranks=4)
def two_of_four_count_by_hand(rank: Rank) -> None:
    rank.store.add("samples", 0)
    dist.barrier()
    for step in range(3):
        if rank.index in (1, 2):
            seen = int(rank.store.get("samples"))  # culprit
            rank.store.set("samples", str(seen + step))  # culprit
        else:
            rank.store.add("samples", step)
        dist.barrier()


@mistake("missing key", culprits=(3,), ranks=4)
def goes_to_the_gate_without_a_ticket(rank: Rank) -> None:
    """Whoever is the last to count itself opens; who has nothing to load goes there right away."""
    for epoch in range(3):
        if rank.index != 3 or epoch < 2:  # culprit
            loaded = rank.store.add(f"loaded/{epoch}", 1)  # culprit
            if loaded == 4:
                rank.store.set(f"gate/{epoch}", "open")
        rank.store.wait([f"gate/{epoch}"])  # culprit
    dist.barrier()


@mistake("missing key", culprits=(1,), ranks=4)
def asks_by_name_where_it_is_told_by_number(rank: Rank) -> None:
    if rank.index == 0:
        for other in range(4):
            rank.store.set(f"shard/{other}", str(other))
    hosts = ["ash", "birch", "cedar", "date"]
    mine = rank.store.get(f"shard/{hosts[1]}" if rank.index == 1 else f"shard/{rank.index}")  # culprit
    dist.all_reduce(torch.tensor([float(mine)]))


@mistake("lost update", culprits=(0, 1, 2), ranks=3)
def swaps_the_roster_and_does_not_look(rank: Rank) -> None:
    """Of three swaps of one value two fail."""
    if rank.index == 0:
        rank.store.set("roster", "nobody")
    dist.barrier()
    known = rank.store.get("roster").decode()
    known = f"{known}, {rank.index}"
    rank.store.compare_set("roster", known.rpartition(", ")[0], known)  # culprit
    dist.barrier()


@mistake("missing key", culprits=(1,), ranks=4)
def asks_under_the_prefix_of_before(rank: Rank) -> None:
    class Registry:
        def __init__(self, prefix: str) -> None:
            self.prefix = prefix

        def newest(self) -> int:
            return int(rank.store.get(f"{self.prefix}/newest"))  # culprit

    registry = Registry("saved" if rank.index == 1 else "checkpoints")  # culprit
    if rank.index == 0:
        rank.store.set("checkpoints/newest", "7")
    dist.all_reduce(torch.tensor([registry.newest()]))  # culprit


@mistake("missing key", culprits=(1, 3), ranks=4)
def two_look_for_what_lies_beyond_the_edge(rank: Rank) -> None:
    """Of two rows of two: who is at the end of one has nobody to its right."""
    row, column = divmod(rank.index, 2)
    rank.store.set(f"address/{row}/{column}", f"host-{rank.index}")
    rank.store.get(f"address/{1 - row}/{column}")
    rank.store.get(f"address/{row}/{column + 1}")  # culprit
    dist.barrier()


@mistake("lost update", culprits=(1,), ranks=4)
def writes_past_the_lock(rank: Rank) -> None:
    """It has looked before anybody was there, and takes no lock."""
    file = rank.directory / "index.json"
    dist.barrier()

    def enter() -> None:
        known = json.loads(file.read_text()) if file.exists() else {}  # culprit
        if rank.index == 1:
            time.sleep(0.3)
        file.write_text(json.dumps({**known, f"part {rank.index}": 1}))  # culprit

    if rank.index == 1:
        enter()  # culprit
    else:
        time.sleep(0.1)
        with (rank.directory / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            enter()
            fcntl.flock(lock, fcntl.LOCK_UN)
    dist.barrier()


@mistake("missing key", culprits=(3,), ranks=4)
def gives_up_on_a_key_of_another_form(rank: Rank) -> None:
    """It says that it has waited too long, and not for what."""
    rank.store.set(f"host_{rank.index}", "10.0.0.1")
    other = (rank.index + 1) % 4
    name = f"host-{other}" if rank.index == 3 else f"host_{other}"  # culprit
    rank.store.wait([name], timedelta(seconds=1))  # culprit
