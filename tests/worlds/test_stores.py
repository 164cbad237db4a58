"""Keys that nobody sets, circles through keys and file locks, updates that get lost: each is found, and whose it is."""

from __future__ import annotations

import fcntl
import json
import linecache
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.elastic.utils import store as elastic

from rankdrill import Outcome, Plan, World
from rankdrill.diagnosis import Finding
from rankdrill.worlds import Status
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job
from rankdrill.worlds.processes.watching import certainty
from rankdrill.worlds.processes.watching.supervise import Supervision

DEADLINE_S = 60.0
AT_ONCE_S = 30.0  # well before the deadline, on whatever machine
SOON_S = 3.0  # a deadline for what nobody can be certain of
Body = Callable[[RankContext], object]


def run(world: World, body: Body, plan: Plan | None = None, deadline: float = DEADLINE_S) -> Outcome:
    return world.run_job(Job(body, with_context=True, plan=plan), deadline=deadline)


def finding(outcome: Outcome) -> Finding:
    assert outcome.elapsed < AT_ONCE_S, "a hang that is certain need not be waited for"
    (found,) = outcome.findings
    return found


def marks(found: Finding) -> list[set[str]]:
    """Behind the line of each side."""
    return [{_mark(site) for site in side.sites} for side in found.sides]


def _mark(site: Any) -> str:
    return "" if site is None else linecache.getline(site.file, site.line).rstrip().rpartition("# ")[2]


# --------------------------------------------------------------------------------------------- keys that are missing


def one_is_not_done(rank: RankContext) -> None:
    dist.barrier()  # last
    if rank.index != 2:
        rank.store.set(f"done/{rank.index}", "yes")
    if rank.index == 0:
        rank.store.wait([f"done/{other}" for other in range(4)])  # waits


def test_the_rank_that_did_not_set_its_key_is_to_blame(fresh: World) -> None:
    outcome = run(fresh, one_is_not_done)
    found = finding(outcome)
    assert (found.kind, found.culprits) == ("missing key", (2,))
    assert found.step == "key 'done/2'"
    did, line = found.sides[0].did, one_is_not_done.__code__.co_firstlineno + 3
    assert did.startswith(f"has not set 'done/2' as others have theirs, at tests/worlds/test_stores.py:{line} in ")
    assert did.endswith(", and returned after collective.barrier")
    assert str(found.sides[1]).startswith("rank 0 waits for the key 'done/2', which nobody has set, at ")
    assert [side.did for side in found.sides[2:]] == ["set 'done/1'", "set 'done/3'"]
    assert marks(found)[:2] == [{"last"}, {"waits"}]
    assert outcome.victims == (0,)


def one_gives_up_waiting_for_one_rank_too_many(rank: RankContext) -> None:
    rank.store.set(f"alive/{rank.index}/00", "yes")
    if rank.index == 1:
        rank.store.wait([f"alive/{other + 1}/00" for other in range(4)], timedelta(seconds=1))  # waits


def test_of_several_keys_that_one_gave_up_waiting_for_the_missing_one_is_told(fresh: World) -> None:
    found = finding(run(fresh, one_gives_up_waiting_for_one_rank_too_many))
    assert (found.kind, found.culprits) == ("missing key", (1,))
    assert found.step == "key 'alive/4/00'"
    assert marks(found)[0] == {"waits"}


def one_can_do_without_the_first(rank: RankContext) -> None:
    """And gives up the second, which is there a little later."""
    if rank.index == 1:
        time.sleep(2)
        rank.store.set("settings/all", "yes")
    elif rank.index == 0:
        for key in ("settings/mine", "settings/all"):
            try:
                rank.store.wait([key], timedelta(seconds=0.3))
            except RuntimeError:
                if key == "settings/all":
                    raise


def test_a_key_that_one_could_do_without_is_not_the_missing_one(fresh: World) -> None:
    assert "settings/mine" not in str(run(fresh, one_can_do_without_the_first).findings)


def one_waits_for_its_own(rank: RankContext) -> None:
    dist.barrier()
    if rank.index != 2:
        rank.store.set(f"size/{rank.index}", "4")  # sets
    for other in range(4):
        rank.store.get(f"size/{other}")  # waits


def test_of_who_waits_for_its_own_key_the_line_is_told_where_others_set_theirs(fresh: World) -> None:
    found = finding(run(fresh, one_waits_for_its_own))
    assert (found.kind, found.culprits) == ("missing key", (2,))
    did, line = found.sides[0].did, one_waits_for_its_own.__code__.co_firstlineno + 3
    assert did.startswith(f"has not set 'size/2' as others have theirs, at tests/worlds/test_stores.py:{line} in ")
    assert did.endswith(", and waits for it")


def one_does_not_come(rank: RankContext) -> None:
    if rank.index == 1:
        return
    if rank.store.add("arrived", 1) == 4:
        rank.store.set("all arrived", "yes")
    rank.store.wait(["all arrived"])  # waits


def one_does_not_come_to_the_agents_barrier(rank: RankContext) -> None:
    if rank.index != 1:
        elastic.barrier(rank.store, 4, "saved", barrier_timeout=1000)  # waits


@pytest.mark.parametrize("body", [one_does_not_come, one_does_not_come_to_the_agents_barrier])
def test_the_rank_that_did_not_count_itself_is_to_blame(fresh: World, body: Body) -> None:
    found = finding(run(fresh, body))
    assert (found.kind, found.culprits) == ("missing key", (1,))
    assert [side.ranks for side in found.sides] == [(1,), (0, 2, 3)]
    assert marks(found)[1] == {"waits"}


def one_counts_nowhere(rank: RankContext) -> None:
    if rank.index != 1:
        if rank.store.add("here", 1) == 4:  # counts
            rank.store.set("all here", "yes")
        rank.store.wait(["all here"])  # waits


def one_leaves_before_it_sets_its_own(rank: RankContext) -> None:
    if rank.index != 1:
        rank.store.set(f"port/{rank.index}", "29500")  # counts
        rank.store.wait([f"port/{other}" for other in range(4)])  # waits


@pytest.mark.parametrize("body", [one_counts_nowhere, one_leaves_before_it_sets_its_own])
def test_of_a_rank_that_was_nowhere_the_line_is_shown_that_it_did_not_come_to(fresh: World, body: Body) -> None:
    found = finding(run(fresh, body))
    assert (found.kind, found.culprits) == ("missing key", (1,))
    assert marks(found)[:2] == [{"counts"}, {"waits"}]
    assert "returned without having come to where others " in found.sides[0].did


def one_waits_for_another_spelling(rank: RankContext) -> None:
    if rank.index == 0:
        rank.store.set("weights/ready", "yes")
    elif rank.index == 1:
        rank.store.get("weight/ready")  # waits
    else:
        rank.store.get("weights/ready")
    dist.barrier()


def one_waits_under_another_prefix(rank: RankContext) -> None:
    if rank.index == 0:
        for other in (1, 2, 3):
            rank.store.set(f"inn:{other}", "yes")
    else:
        prefix = "in" if rank.index == 1 else "inn"
        rank.store.get(f"{prefix}:{rank.index}")  # waits


def test_of_keys_for_each_that_are_got_but_one_the_one_that_waits_names_another(fresh: World) -> None:
    found = finding(run(fresh, one_waits_under_another_prefix))
    assert (found.kind, found.culprits) == ("missing key", (1,))


def one_collects_from_a_rank_that_there_is_not(rank: RankContext) -> None:
    if rank.index:
        rank.store.set(f"report/{rank.index}", "ready")
    else:
        rank.store.wait([f"report/{other}" for other in range(1, 5)])  # waits


def test_who_collects_from_one_rank_too_many_is_to_blame(fresh: World) -> None:
    found = finding(run(fresh, one_collects_from_a_rank_that_there_is_not))
    assert (found.kind, found.culprits, found.step) == ("missing key", (0,), "key 'report/4'")
    assert marks(found)[0] == {"waits"}


def test_the_rank_that_waits_for_another_key_than_the_others_is_to_blame(fresh: World) -> None:
    found = finding(run(fresh, one_waits_for_another_spelling))
    assert (found.kind, found.culprits) == ("missing key", (1,))
    assert marks(found)[0] == {"waits"}
    assert found.sides[1].did == "set 'weights/ready'"


def one_sets_its_own_a_round_less(rank: RankContext) -> None:
    for step in range(3):
        if rank.index != 1 or step != 2:
            rank.store.set(f"seen/{rank.index}/{step}", "yes")
        if rank.index == 0:
            rank.store.wait([f"seen/{other}/{step}" for other in range(4)])  # waits
    dist.barrier()


def one_counts_a_round_twice(rank: RankContext) -> None:
    for step in range(3):
        if rank.index == 1:
            rank.store.set(f"round/{step + step // 2}", "yes")
        elif rank.index == 0:
            rank.store.wait([f"round/{step}"])  # waits
    dist.barrier()


def one_sets_for_all_but_the_last(rank: RankContext) -> None:
    if rank.index == 1:
        for other in (0, 2):
            rank.store.set(f"work/{other}", "yes")
    else:
        rank.store.get(f"work/{rank.index}")  # waits


@pytest.mark.parametrize(
    "body", [one_sets_its_own_a_round_less, one_counts_a_round_twice, one_sets_for_all_but_the_last]
)
def test_the_one_whose_row_of_keys_lacks_one_is_to_blame(fresh: World, body: Body) -> None:
    found = finding(run(fresh, body))
    assert (found.kind, found.culprits) == ("missing key", (1,))
    assert marks(found)[1] == {"waits"}


def the_setter_stops_too_early(rank: RankContext) -> None:
    for step in range(5):
        if rank.index > 0:
            rank.store.wait([f"step/{step}"])  # waits
        elif step < 4:
            rank.store.set(f"step/{step}", "yes")  # sets


def test_the_one_that_sets_what_the_others_wait_for_is_to_blame(fresh: World) -> None:
    found = finding(run(fresh, the_setter_stops_too_early))
    assert (found.kind, found.culprits) == ("missing key", (0,))
    assert found.sides[0].did == "has set 'step/3' and not 'step/4', and returned after store.set"
    assert marks(found) == [{"sets"}, {"waits"}]


def the_setter_sets_another_and_goes_on(rank: RankContext) -> None:
    if rank.index == 0:
        rank.store.set("data/ready/0", "yes")
    else:
        rank.store.wait(["data/ready"])  # waits
    dist.barrier()  # goes on


def test_of_who_has_set_another_key_and_gone_on_both_lines_are_told(fresh: World) -> None:
    found = finding(run(fresh, the_setter_sets_another_and_goes_on))
    assert (found.kind, found.culprits) == ("missing key", (0,))
    line = the_setter_sets_another_and_goes_on.__code__.co_firstlineno + 2
    assert f"has set 'data/ready/0', at tests/worlds/test_stores.py:{line} in " in found.sides[0].did
    assert found.sides[0].did.endswith(", and not 'data/ready', and waits in barrier #0 on 'default'")
    assert marks(found) == [{"goes on"}, {"waits"}]


def test_of_two_that_do_not_fit_nobody_is_to_blame(two: World) -> None:
    def body(rank: RankContext) -> None:
        if rank.index == 0:
            rank.store.set("model-ready", "yes")  # sets
        else:
            rank.store.get("model_ready")  # waits

    outcome = run(two, body)
    found = finding(outcome)
    assert (found.kind, found.culprits) == ("missing key", ())
    assert marks(found) == [{"waits"}, {"sets"}]
    assert "missing key: rank 1 waits for the key 'model_ready', which nobody has set" in outcome.summary()


def test_the_same_name_in_another_store(two: World, tmp_path: Path) -> None:
    def body(rank: RankContext) -> None:
        if rank.index == 0:
            store = dist.FileStore(str(tmp_path / "other"), 2)  # type: ignore[attr-defined]
            store.set("here", "yes")  # sets
        else:
            rank.store.get("here")  # waits

    found = finding(run(two, body))
    assert [side.did for side in found.sides] == [
        "waits for the key 'here', which nobody has set",
        "set 'here' in another store",
    ]


def test_a_key_that_was_deleted(two: World) -> None:
    def body(rank: RankContext) -> None:
        rank.store.set("token", "yes")
        dist.barrier()
        if rank.index == 0:
            rank.store.delete_key("token")
        dist.barrier()
        if rank.index == 1:
            rank.store.get("token")

    found = finding(run(two, body))
    assert found.kind == "missing key"
    assert found.sides[0].did == "waits for the key 'token', which rank 0 has deleted"


def test_a_store_that_a_rank_serves(four: World) -> None:
    def body(rank: RankContext) -> None:
        port: list[Any] = [None]
        if rank.index == 0:
            store = dist.TCPStore("localhost", 0, None, True, wait_for_workers=False)  # type: ignore[attr-defined]
            port = [store.port]
        dist.broadcast_object_list(port, src=0)
        if rank.index > 0:
            store = dist.TCPStore("127.0.0.1", port[0], None, False)  # type: ignore[attr-defined]
            store.set(f"up/{rank.index}", "yes")
        if rank.index == 0:
            store.wait([f"up/{other}" for other in range(5)])
        dist.barrier()

    found = finding(run(four, body))
    assert found.kind == "missing key"
    assert "TCPStore" not in str(found)


def leaves_its_own_out(rank: RankContext) -> None:
    if rank.index == 0:
        rank.store.wait(["done/1", "done/2"])
        rank.store.set("stop", "1")
    else:
        if rank.index != 2 or rank.world_size > 4:
            rank.store.set(f"done/{rank.index}", "1")  # its own
        rank.store.wait(["stop"])


def test_who_leaves_out_the_key_of_its_own_number_is_to_blame_though_one_other_alone_set_such() -> None:
    with World(3) as three:
        found = finding(run(three, leaves_its_own_out))
    assert (found.kind, found.culprits) == ("missing key", (2,))
    assert marks(found)[0] == {"its own"}
    assert found.sides[0].did.endswith("without having set 'done/2' where each sets its own")


def waits_for_one_more_first(rank: RankContext) -> None:
    rank.store.set(f"count/{rank.index}", "1")
    if rank.index == 0:
        for other in range(1, rank.world_size + 1):
            rank.store.get(f"count/{other}")  # one too many
        rank.store.set("total", "1")
    rank.store.get("total")


def test_told_is_the_key_that_the_only_setter_of_another_waits_for(fresh: World) -> None:
    found = finding(run(fresh, waits_for_one_more_first))
    assert (found.kind, found.culprits) == ("missing key", (0,))
    assert found.step == "key 'count/4'"
    assert marks(found)[0] == {"one too many"}


def the_only_setter_leaves(rank: RankContext) -> None:
    if rank.index == 0:
        if rank.world_size > 4:
            rank.store.set("tokens", "a b")  # sets
    else:
        rank.store.get("tokens")  # waits


def the_only_setter_goes_on(rank: RankContext) -> None:
    if rank.index == 0 and rank.world_size > 4:
        rank.store.set("words", "a b")  # sets
    if rank.index != 0:
        rank.store.get("words")  # waits
    dist.barrier()


@pytest.mark.parametrize("body", [the_only_setter_leaves, the_only_setter_goes_on])
def test_who_has_gone_past_the_only_line_that_sets_the_key_is_to_blame(fresh: World, body: Body) -> None:
    found = finding(run(fresh, body))
    assert (found.kind, found.culprits) == ("missing key", (0,))
    assert "by the only line that does, which no other rank can come to" in found.sides[0].did
    assert marks(found)[:2] == [{"sets"}, {"waits"}]


def test_where_another_one_gets_along_without_the_key_nobody_is_to_blame(fresh: World) -> None:
    def body(rank: RankContext) -> None:
        if rank.index == 0 and rank.world_size > 4:
            rank.store.set("units", "a b")
        if rank.index in json.loads("[2]"):
            rank.store.get("units")

    found = finding(run(fresh, body))
    assert (found.kind, found.culprits) == ("missing key", ())


def one_deletes_it_first(rank: RankContext) -> None:
    if rank.index == 0:
        rank.store.set("plan", "a b")
        rank.store.delete_key("plan")  # deletes
    dist.barrier()
    if rank.index != 0:
        rank.store.get("plan")  # waits


def test_who_deletes_what_several_have_still_to_get_is_to_blame(fresh: World) -> None:
    found = finding(run(fresh, one_deletes_it_first))
    assert (found.kind, found.culprits) == ("missing key", (0,))
    assert found.sides[0].did == "has deleted 'plan', which others had still to get"
    assert marks(found) == [{"deletes"}, {"waits"}]


def one_spells_it_in_another_way(rank: RankContext) -> None:
    name = "Ready" if rank.index == 3 else "ready"
    rank.store.set(f"{name}/{rank.index}", "yes")  # sets
    rank.store.wait([f"ready/{other}" for other in range(4)])  # waits


def test_who_spells_the_key_in_another_way_than_all_wait_for_is_to_blame(fresh: World) -> None:
    found = finding(run(fresh, one_spells_it_in_another_way))
    assert (found.kind, found.culprits) == ("missing key", (3,))
    assert found.sides[0].did == "has set 'Ready/3', which nobody gets, and not 'ready/3'"
    assert marks(found)[:2] == [{"sets"}, {"waits"}]


def one_spells_all_of_them_in_another_way(rank: RankContext) -> None:
    if rank.index == 0:
        for worker in range(1, 4):
            rank.store.set(f"part-{worker}", "yes")  # sets
    else:
        rank.store.get(f"part_{rank.index}")  # gets


def test_who_spells_the_keys_of_several_in_another_way_is_to_blame(fresh: World) -> None:
    found = finding(run(fresh, one_spells_all_of_them_in_another_way))
    assert (found.kind, found.culprits) == ("missing key", (0,))
    assert marks(found)[:2] == [{"sets"}, {"gets"}]


def one_swaps_what_was_never_there(rank: RankContext) -> None:
    if rank.index == 1:
        rank.store.compare_set("leader", "nobody", "1")  # swaps
    else:
        rank.store.get("leader")  # waits


def test_who_swaps_a_value_that_the_key_never_had_is_to_blame(fresh: World) -> None:
    found = finding(run(fresh, one_swaps_what_was_never_there))
    assert (found.kind, found.culprits) == ("missing key", (1,))
    assert found.sides[0].did == "has set 'leader' only if it is 'nobody', and it was not there"
    assert marks(found) == [{"swaps"}, {"waits"}]


def test_where_several_swap_it_nobody_is_to_blame(fresh: World) -> None:
    def body(rank: RankContext) -> None:
        if rank.index in (1, 2):
            rank.store.compare_set("chief", "nobody", str(rank.index))
        else:
            rank.store.get("chief")

    found = finding(run(fresh, body))
    assert (found.kind, found.culprits) == ("missing key", ())


def test_a_key_that_is_set_where_it_was_not_there_is_there(fresh: World) -> None:
    def body(rank: RankContext) -> str:
        if rank.index == 1:
            rank.store.compare_set("owner", "", "1")
            rank.store.compare_set("owner", "1", "2")
        return str(bytes(rank.store.get("owner")).decode())

    assert set(run(fresh, body).unwrap()) <= {"1", "2"}


# ------------------------------------------------------------------------------------------- what is not certain


def test_what_another_one_may_still_do_is_waited_for(two: World) -> None:
    """A thread of a rank that has returned, and a child."""

    def by_a_thread(rank: RankContext) -> None:
        if rank.index == 0:
            threading.Timer(1.0, rank.store.set, args=("from a thread", "yes")).start()
        else:
            rank.store.wait(["from a thread"])

    def by_a_child(rank: RankContext) -> None:
        if rank.index == 1:
            rank.store.wait(["from a child"])
        elif os.fork() == 0:
            time.sleep(1.0)
            rank.store.set("from a child", "yes")
            os._exit(0)

    for body in (by_a_thread, by_a_child):
        assert run(two, body).ok
        two.discard()


def test_what_a_thread_did_before_it_was_looked_for(
    two: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine it sets the key, and ends, between the look at the ledgers and the one at the stacks."""
    go, gone = tmp_path / "go", tmp_path / "gone"
    monkeypatch.setattr(certainty, "others_may_act", lambda *_: False)  # else nobody would be asked
    ask = Supervision._ask_stacks

    def asked(supervision: Supervision, handles: Any) -> dict[int, str]:
        go.touch()
        until = time.monotonic() + AT_ONCE_S
        while not gone.exists() and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.1)  # for the thread to end
        return ask(supervision, handles)

    monkeypatch.setattr(Supervision, "_ask_stacks", asked)

    def sets_once_it_may(store: Any) -> None:
        while not os.access(go, os.F_OK):
            time.sleep(0.02)
        store.set("once it may", "yes")
        os.close(os.open(gone, os.O_CREAT))

    def body(rank: RankContext) -> None:
        if rank.index == 0:
            threading.Thread(target=sets_once_it_may, args=(rank.store,)).start()
        else:
            rank.store.wait(["once it may"])
            time.sleep(1.0)  # long enough for the run to be ended
        dist.barrier()

    assert run(two, body).ok


def test_a_thread_of_the_test_may_set_a_key(two: World, tmp_path: Path) -> None:
    path = str(tmp_path / "store")

    def body(rank: RankContext) -> None:
        store = dist.FileStore(path, -1)  # type: ignore[attr-defined]
        store.wait(["go"])

    outside = dist.FileStore(path, -1)  # type: ignore[attr-defined]
    timer = threading.Timer(1.5, outside.set, args=("go", "yes"))
    timer.start()
    try:
        assert run(two, body).ok
    finally:
        timer.join()


def test_a_store_that_the_test_serves(two: World) -> None:
    server = dist.TCPStore("localhost", 0, None, True, wait_for_workers=False)  # type: ignore[attr-defined]
    port = server.port

    def body(rank: RankContext) -> None:
        dist.TCPStore("localhost", port, None, False).wait(["go"])  # type: ignore[attr-defined]

    outcome = run(two, body, deadline=SOON_S)
    assert outcome.elapsed >= SOON_S
    assert [rank.status for rank in outcome.ranks] == [Status.STUCK, Status.STUCK]


def test_a_rank_that_computes_is_waited_for(two: World) -> None:
    def body(rank: RankContext) -> None:
        if rank.index == 0:
            time.sleep(1.0)
            rank.store.set("late", "yes")
        rank.store.wait(["late"])

    assert run(two, body).ok


# --------------------------------------------------------------------------------------------- circles


def a_key_behind_a_collective(rank: RankContext) -> None:
    if rank.index == 3:
        rank.store.get("vocabulary")  # key
    dist.all_reduce(torch.ones(1))  # sum
    if rank.index == 1:
        rank.store.set("vocabulary", "a b")


def test_a_circle_through_a_key_and_a_collective(fresh: World) -> None:
    found = finding(run(fresh, a_key_behind_a_collective))
    assert (found.kind, found.culprits) == ("deadlock", ())
    assert found.step == "rank 1 waits for rank 3, which waits for rank 1"
    assert [side.ranks for side in found.sides] == [(1,), (3,)]
    assert marks(found) == [{"sum"}, {"key"}]


def each_waits_for_the_next(rank: RankContext) -> None:
    rank.store.get(f"address/{(rank.index + 1) % 4}")  # key
    rank.store.set(f"address/{rank.index}", "127.0.0.1")


def test_a_circle_through_keys_alone(fresh: World) -> None:
    found = finding(run(fresh, each_waits_for_the_next))
    assert found.kind == "deadlock"
    assert found.step == " waits for ".join(f"rank {r}" for r in (0, 1)) + "".join(
        f", which waits for rank {r}" for r in (2, 3, 0)
    )
    assert {rank for side in found.sides for rank in side.ranks} == {0, 1, 2, 3}


def each_waits_by_names_of_its_own(rank: RankContext) -> None:
    for turn in range(3):
        mine, other = f"turn{turn}/{rank.index}", f"turn{turn}/{(rank.index + 1) % 4}"
        if turn == 2:
            rank.store.wait([other])  # key
            rank.store.set(mine, "here")
        else:
            rank.store.set(mine, "here")
            rank.store.wait([other])
        dist.barrier()


def test_a_circle_through_keys_that_have_names(fresh: World) -> None:
    found = finding(run(fresh, each_waits_by_names_of_its_own))
    assert (found.kind, found.culprits, found.ranks) == ("deadlock", (), (0, 1, 2, 3))
    assert marks(found) == [{"key"}] * 4


def two_locks(rank: RankContext, directory: str) -> None:
    paths = [Path(directory, name) for name in ("a", "b")]
    if rank.index == 1:
        paths.reverse()
    with paths[0].open("w") as first, paths[1].open("w") as second:
        fcntl.flock(first, fcntl.LOCK_EX)  # first
        dist.barrier()
        fcntl.flock(second, fcntl.LOCK_EX)  # second


def posix_locks(rank: RankContext, directory: str) -> None:
    files = [os.open(Path(directory, name), os.O_RDWR | os.O_CREAT) for name in ("c", "d")]
    mine, theirs = files if rank.index == 0 else files[::-1]
    fcntl.lockf(mine, fcntl.LOCK_EX)  # first
    dist.barrier()
    if rank.index == 0:
        fcntl.lockf(theirs, fcntl.LOCK_EX)  # second
    dist.barrier()  # second


@pytest.mark.parametrize("body", [two_locks, posix_locks])
def test_a_circle_through_file_locks(two: World, tmp_path: Path, body: Callable[..., None]) -> None:
    outcome = two.run_job(Job(body, (str(tmp_path),), with_context=True), deadline=DEADLINE_S)
    found = finding(outcome)
    assert (found.kind, found.culprits) == ("deadlock", ())
    assert found.step == "rank 0 waits for rank 1, which waits for rank 0"
    assert all(mark == {"second"} for mark in marks(found))
    assert "holds '" in str(found)


def one_holds_it_meanwhile(rank: RankContext, directory: str) -> None:
    with Path(directory, "cache").open("w") as file:
        if rank.index == 2:
            fcntl.flock(file, fcntl.LOCK_EX)
            rank.store.set("building", "yes")
            dist.barrier()  # holds
        else:
            rank.store.wait(["building"])
            fcntl.flock(file, fcntl.LOCK_EX)
            dist.barrier()


def test_who_holds_what_all_others_wait_for_is_to_blame_if_it_alone_does_so(fresh: World, tmp_path: Path) -> None:
    found = finding(fresh.run_job(Job(one_holds_it_meanwhile, (str(tmp_path),), with_context=True)))
    assert (found.kind, found.culprits) == ("deadlock", (2,))
    assert marks(found)[0] == {"holds"}


@contextmanager
def locked(directory: str) -> Iterator[None]:
    with Path(directory, "cache").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def one_meets_the_others_before_it_gives_it_up(rank: RankContext, directory: str) -> None:
    if rank.index != 1:
        rank.store.wait(["building"])
    with locked(directory):
        if rank.index == 1:
            rank.store.set("building", "yes")
            dist.barrier()  # holds
    if rank.index != 1:
        dist.barrier()


def test_who_meets_the_others_with_the_lock_which_they_do_without_is_to_blame(fresh: World, tmp_path: Path) -> None:
    job = Job(one_meets_the_others_before_it_gives_it_up, (str(tmp_path),), with_context=True)
    found = finding(fresh.run_job(job))
    assert (found.kind, found.culprits) == ("deadlock", (1,))
    assert "holds" in marks(found)[0]


def all_hold_it_meanwhile(directory: str) -> None:
    with Path(directory, "cache").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        dist.barrier()


def test_who_came_first_of_all_to_a_lock_is_not_to_blame(fresh: World, tmp_path: Path) -> None:
    found = finding(fresh.run(all_hold_it_meanwhile, str(tmp_path), deadline=DEADLINE_S))
    assert (found.kind, found.culprits) == ("deadlock", ())


def test_a_lock_that_a_rank_never_gives_up(two: World, tmp_path: Path) -> None:
    def body() -> None:
        lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
        if dist.get_rank() == 0:
            fcntl.flock(lock, fcntl.LOCK_EX)
        dist.barrier()
        if dist.get_rank() == 1:
            fcntl.flock(lock, fcntl.LOCK_EX)

    outcome = two.run(body, deadline=DEADLINE_S)
    assert outcome.elapsed < AT_ONCE_S
    assert (outcome.culprits, outcome.victims) == ((0,), (1,))
    assert outcome.describe(0).startswith("rank 0 returned with the lock of '")
    assert "', for which rank 1 waits, at " in outcome.describe(0)


def test_who_waits_for_a_key_behind_anothers_mistake_is_a_victim(fresh: World) -> None:
    def body(rank: RankContext) -> None:
        dist.barrier()
        if rank.index == 0:
            rank.store.get("summary")
            return
        if rank.index == 3:
            return
        dist.send(torch.ones(1), dst=3)
        rank.store.set("summary", "yes")

    outcome = run(fresh, body)
    assert outcome.elapsed < AT_ONCE_S
    assert outcome.findings[0].kind == "unmatched message"
    assert 0 not in outcome.findings[0].culprits


# --------------------------------------------------------------------------------------------- lost updates


def counts(rank: RankContext) -> None:
    if rank.index == 0:
        rank.store.set("seen", "0")
    dist.barrier()
    for _ in range(10):
        seen = int(rank.store.get("seen"))  # got
        rank.store.set("seen", str(seen + 1))  # set
    dist.barrier()


def test_updates_that_get_lost_are_found_though_all_ranks_return(fresh: World) -> None:
    outcome = run(fresh, counts)
    assert all(rank.status is Status.RETURNED for rank in outcome.ranks)
    found = finding(outcome)
    assert (found.kind, found.step, found.ranks) == ("lost update", "key 'seen'", (0, 1, 2, 3))
    assert marks(found) == [{"set"}]
    assert "get 'seen' at " in found.sides[0].did
    assert not outcome.ok


def counts_in_a_store_that_one_serves(rank: RankContext) -> None:
    store = None
    if rank.index == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
        store.set("seen", "0")
    port = [store.port if store is not None else 0]
    dist.broadcast_object_list(port, src=0)
    store = store or dist.TCPStore("127.0.0.1", port[0], is_master=False)  # type: ignore[attr-defined]
    for _ in range(10):
        seen = int(store.get("seen"))  # got
        store.set("seen", str(seen + 1))  # set
    dist.barrier()


def test_who_connects_to_a_store_has_not_waited_for_its_turn(fresh: World) -> None:
    found = finding(run(fresh, counts_in_a_store_that_one_serves))
    assert (found.kind, found.culprits) == ("lost update", (0, 1, 2, 3))
    assert marks(found) == [{"set"}]


def counts_two_at_once(rank: RankContext) -> None:
    if rank.index == 0:
        rank.store.multi_set(["hits", "misses"], ["0", "0"])  # type: ignore[attr-defined]
    dist.barrier()
    hits, misses = (int(value) for value in rank.store.multi_get(["hits", "misses"]))  # got
    rank.store.multi_set(["hits", "misses"], [str(hits + 1), str(misses + 2)])  # type: ignore[attr-defined]  # set
    dist.barrier()


def test_of_updates_of_several_keys_at_once_one_is_told(fresh: World) -> None:
    found = finding(run(fresh, counts_two_at_once))
    assert (found.kind, found.ranks) == ("lost update", (0, 1, 2, 3))
    assert marks(found) == [{"set"}]
    assert "multi_get '" in found.sides[0].did


def test_several_keys_of_which_only_ones_own_changes(fresh: World) -> None:
    """All say the same of the phase; what each counts is its own."""

    def body(rank: RankContext) -> None:
        mine = f"steps/{rank.index}"
        rank.store.multi_set([mine, "phase"], ["0", "warm up"])  # type: ignore[attr-defined]
        dist.barrier()
        steps, _phase = rank.store.multi_get([mine, "phase"])
        rank.store.multi_set([mine, "phase"], [str(int(steps) + 1), "training"])  # type: ignore[attr-defined]
        dist.barrier()

    assert run(fresh, body).ok


def counts_once(rank: RankContext) -> None:
    if rank.index == 0:
        rank.store.set("seen", "0")
    dist.barrier()
    rank.store.set("seen", str(int(rank.store.get("seen")) + 1))  # set
    dist.barrier()


def test_an_update_is_lost_though_all_set_the_same(fresh: World) -> None:
    found = finding(run(fresh, counts_once))
    assert (found.kind, found.step) == ("lost update", "key 'seen'")
    assert marks(found) == [{"set"}]


def test_an_update_may_be_lost_where_all_were_lucky(fresh: World) -> None:
    def body(rank: RankContext) -> None:
        if rank.index == 0:
            rank.store.set("sum", "0")
        dist.barrier()
        time.sleep(0.3 * rank.index)
        seen = int(rank.store.get("sum"))
        rank.store.set("sum", str(seen + rank.index))
        dist.barrier()

    found = finding(run(fresh, body))
    assert (found.kind, found.ranks) == ("lost update", (0, 1, 2, 3))
    assert "which undoes what others may do to it between the two" in found.sides[0].did


def signs_in(rank: RankContext) -> None:
    some = dist.new_group([1, 2])
    if rank.index == 0:
        rank.store.set("present", "")
    dist.barrier()
    if rank.index in (1, 2):
        present = rank.store.get("present").decode()
        dist.all_reduce(torch.ones(1), group=some)
        rank.store.set("present", present + f"{rank.index};")  # set
    dist.barrier()


def test_a_collective_between_the_two_keeps_nobody_apart(fresh: World) -> None:
    found = finding(run(fresh, signs_in))
    assert (found.kind, found.step, found.ranks) == ("lost update", "key 'present'", (1, 2))
    assert found.culprits == found.ranks, "each does it"
    assert marks(found) == [{"set"}]


def counts_on_from_before_the_others_added(rank: RankContext) -> None:
    rank.store.add("samples", 1)
    dist.barrier()
    stale = int(rank.store.get("samples")) if rank.index == 2 else 0
    dist.barrier()
    if rank.index != 2:
        rank.store.add("samples", 1)
    dist.barrier()
    if rank.index == 2:
        rank.store.set("samples", str(stale + 1))  # set
    dist.barrier()


def test_who_counts_on_from_before_the_others_added_is_at_fault(fresh: World) -> None:
    found = finding(run(fresh, counts_on_from_before_the_others_added))
    assert (found.kind, found.culprits) == ("lost update", (2,))
    assert marks(found)[0] == {"set"}


def test_who_puts_back_what_was_there_before_means_it(fresh: World) -> None:
    def body(rank: RankContext) -> None:
        rank.store.add("samples", 1)
        dist.barrier()
        before = rank.store.get("samples").decode() if rank.index == 2 else ""
        dist.barrier()
        if rank.index != 2:
            rank.store.add("samples", 1)
        dist.barrier()
        if rank.index == 2:
            rank.store.set("samples", before)
        dist.barrier()

    assert run(fresh, body).ok


def test_all_may_count_on_together_from_what_they_got_before_they_met(fresh: World) -> None:
    def body(rank: RankContext) -> None:
        if rank.index == 0:
            rank.store.set("generation", "4")
        dist.barrier()
        generation = int(rank.store.get("generation"))
        dist.barrier()
        rank.store.set("generation", str(generation + 1))
        dist.barrier()

    assert run(fresh, body).ok


def test_what_is_a_sum_they_do_not_count_on_together(fresh: World) -> None:
    def body(rank: RankContext) -> None:
        if rank.index == 0:
            rank.store.set("samples", "0")
        dist.barrier()
        seen = int(rank.store.get("samples"))
        dist.barrier()
        rank.store.set("samples", str(seen + 1))
        dist.barrier()

    found = finding(run(fresh, body))
    assert (found.kind, found.ranks) == ("lost update", (0, 1, 2, 3))


def test_one_of_those_that_got_it_may_say_for_all_what_they_add_up_to(fresh: World) -> None:
    def body(rank: RankContext) -> None:
        if rank.index == 0:
            rank.store.set("total", "10")
        dist.barrier()
        seen = torch.tensor([float(rank.store.get("total"))])
        dist.all_reduce(seen)
        if rank.index == 1:
            rank.store.set("total", str(seen.item()))
        dist.barrier()

    assert run(fresh, body).ok


def test_what_all_change_in_the_same_way_is_not_lost(fresh: World) -> None:
    def body(rank: RankContext) -> None:
        if rank.index == 0:
            rank.store.set("most", "0")
        dist.barrier()
        rank.store.set("most", str(max(int(rank.store.get("most")), 5)))
        dist.barrier()

    assert run(fresh, body).ok


def test_a_plan_that_lets_one_come_late_is_no_mistake(fresh: World) -> None:
    """What a plan leads to is what is tested."""
    plan = Plan.parse("rank 1: delay(0.01) before store.set on seen".replace("seen", '"seen"'))
    assert run(fresh, counts, plan).ok


# --------------------------------------------------------------------------------------------- faults


def publishes(rank: RankContext) -> None:
    if rank.index == 1:
        rank.store.set("config", "{}")
    rank.store.get("config")


def test_a_set_that_is_skipped_is_waited_for_no_longer_than_needed(fresh: World) -> None:
    outcome = run(fresh, publishes, Plan.parse("rank 1: skip at store.set"))
    assert outcome.elapsed < AT_ONCE_S
    assert [rank.fired for rank in outcome.ranks] == [(0,), (1,), (0,), (0,)]
    assert all("which nobody has set" in str(rank) for rank in outcome.ranks)


def test_who_returned_without_a_key_under_a_plan(two: World) -> None:
    def body(rank: RankContext) -> None:
        rank.store.set("config", "{}") if rank.index else rank.store.get("config")

    outcome = run(two, body, Plan.parse("rank 1: skip at store.set"))
    assert outcome.culprits == (1,)
    assert outcome.describe(1).startswith("rank 1 returned without setting 'config', for which rank 0 waits, at ")


@pytest.mark.parametrize("strike", ["delay(0.2) before", "delay(0.2) after"])
def test_a_store_that_is_slow(fresh: World, strike: str) -> None:
    outcome = run(fresh, publishes, Plan.parse(f'rank 1: {strike} store.set on "config"'))
    assert outcome.ok
    assert outcome.elapsed >= 0.2


def publishes_when_others_wait(rank: RankContext) -> None:
    if rank.index == 1:
        time.sleep(0.5)
    publishes(rank)


def test_a_rank_that_ends_at_a_store(fresh: World) -> None:
    outcome = run(fresh, publishes_when_others_wait, Plan.parse("rank 1: kill before store.set"))
    assert outcome.elapsed < AT_ONCE_S
    assert outcome.ranks[1].by_plan
    assert outcome.ranks[0].wait is not None


def test_an_error_at_a_store(fresh: World) -> None:
    outcome = run(fresh, publishes, Plan.parse("rank 2: oom at store.get"))
    assert isinstance(outcome.ranks[2].error, MemoryError)
    assert outcome.culprits == (2,)


def one_takes_the_job_before_all_have_seen_it(rank: RankContext) -> None:
    """That it sets a key of a like name besides says nothing."""
    if rank.index == 0:
        rank.store.set("job/7", "resize")
    dist.barrier()
    if rank.index == 1:
        rank.store.get("job/7")
        rank.store.delete_key("job/7")  # deletes
        rank.store.set("job/7/mine", "yes")
    else:
        rank.store.wait(["job/7/mine"])
        rank.store.get("job/7")  # waits


def test_who_deletes_a_key_is_to_blame_though_its_setter_waits_for_it_too(fresh: World) -> None:
    found = finding(run(fresh, one_takes_the_job_before_all_have_seen_it))
    assert (found.kind, found.culprits) == ("missing key", (1,))
    assert marks(found) == [{"deletes"}, {"waits"}]


def the_last_opens_the_gate(rank: RankContext) -> None:
    """As it happens, rank 0 is the last of round 0, and rank 2 of round 2; of round 1 it is rank 3."""
    for turn, last in enumerate((0, 3, 2, 1)):
        if turn == 3 and rank.index == 2:
            return
        while rank.index == last and rank.store.add(f"{turn}/here", 0) < 3:
            time.sleep(0.01)
            if turn == 3:
                break
        if rank.store.add(f"{turn}/here", 1) == 4:  # counts
            rank.store.set(f"turn{turn}/go", "yes")
        rank.store.wait([f"turn{turn}/go"])


def test_whoever_counted_last_set_it_and_no_number_of_a_rank_is_meant(fresh: World) -> None:
    found = finding(run(fresh, the_last_opens_the_gate))
    assert (found.kind, found.culprits) == ("missing key", (2,))
    line = the_last_opens_the_gate.__code__.co_firstlineno + 9
    assert f"nor added to '3/here' as others have, at tests/worlds/test_stores.py:{line} in" in found.sides[0].did
