"""Several threads of each rank, each calling on a group of its own, at the same time."""

from __future__ import annotations

import pathlib
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import rankdrill
from rankdrill.errors import UsageError
from rankdrill.gathers import all_gather
from rankdrill.gathers.agreement import channel, registry
from rankdrill.gathers.agreement.registry import channel_of
from rankdrill.gathers.network import torch_seam
from rankdrill.gathers.network.polled_store import PolledStore
from tests.gathers.all_ways import LARGE, SMALL, WAYS, At, tensor, troubled, way
from tests.gathers.attempts import TIMEOUT_S, Unloadable, Unpicklable, all_alike, attempt, replaced
from tests.gathers.in_threads import PATIENCE_S, at_once

# Two over the same ranks, two that overlap with them and with each other; a thread for each.
MEMBERS = ((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2), (1, 2, 3))
TURNS = 2 * len(WAYS)
DEADLINE_S = 120.0


def wrong_calls(members: tuple[int, ...], at: At, first: int, turns: int) -> list[Any]:
    """What was not as it should be in `turns` calls on one group, every path in turn, large and small."""
    me, wrong = members.index(dist.get_rank()), []
    for turn in range(first, first + turns):
        one, numbers = WAYS[turn % len(WAYS)], LARGE if turn % 3 == 0 else SMALL
        marks = [1000 * first + 10 * turn + rank for rank in members]
        got = attempt(one, tensor(marks[me], numbers), at)
        if got != one.expected(marks, numbers, me):
            wrong.append((one.name, members, turn, got))
    return wrong


def test_threads_on_groups_of_their_own(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    def body() -> Any:
        groups = [dist.new_group(list(members)) for members in MEMBERS]
        mine = [
            (members, At(group, str(tmp_path)), 5 * number, TURNS)
            for number, (members, group) in enumerate(zip(MEMBERS, groups, strict=True))
            if dist.get_rank() in members
        ]
        return at_once(*(lambda one=one: wrong_calls(*one) for one in mine))

    for wrong in world.run(body, deadline=DEADLINE_S).unwrap():
        assert wrong == [[]] * len(wrong)
        assert len(wrong) >= 3
    assert [entry.name for entry in tmp_path.iterdir() if not entry.name.endswith(".pt")] == []


def test_a_thread_whose_group_fails_disturbs_no_other(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    class Interrupting:
        def __reduce__(self) -> Any:
            raise KeyboardInterrupt

    def failing(at: At) -> list[str]:
        seen = []
        for trouble in (Unpicklable(), Interrupting(), Unloadable()) * 4:
            try:
                failed = attempt(way("all_gather_object"), troubled(trouble) if dist.get_rank() == 2 else tensor(0), at)
                seen.append(f"{failed.kind} {failed.ranks}")
            except KeyboardInterrupt:
                seen.append("PeerLost (2,)")
            if dist.get_rank() == 3 and len(seen) == 6:
                time.sleep(1.5)
            late = attempt(way("gather"), tensor(0), At(at.group, "", 1.0 if len(seen) == 6 else TIMEOUT_S))
            seen.append("" if isinstance(late, list) else f"late: {late.kind}")
        return seen

    def body() -> Any:
        first, *others = (dist.new_group([0, 1, 2, 3]) for _ in range(3))
        calls = (lambda group=group: wrong_calls(MEMBERS[0], At(group, str(tmp_path)), 0, TURNS) for group in others)
        return at_once(lambda: failing(At(first, str(tmp_path))), *calls)

    got = world.run(body, deadline=DEADLINE_S).unwrap()
    assert [others for _, *others in got] == [[[], []]] * 4
    seen = all_alike([failed for failed, *_ in got])
    assert seen[::2] == ["EncodeError (2,)", "PeerLost (2,)", "DecodeError (2,)"] * 4
    assert [one for one in seen[1::2] if one] in ([], ["late: PeerLost"])


def test_two_threads_on_one_group(world: rankdrill.World) -> None:
    """The second is refused, at once, and the first never learns of it."""

    def body() -> Any:
        group = dist.new_group([0, 1, 2, 3])
        first: list[Any] = []
        waits = threading.Thread(target=lambda: first.append(attempt(all_gather, 1, group=group, timeout=TIMEOUT_S)))
        if dist.get_rank():
            waits.start()
            while not channel_of(group).busy.locked():
                time.sleep(0.001)
            for _ in range(3):
                with pytest.raises(UsageError, match="under way"):
                    all_gather(2, group=group, timeout=TIMEOUT_S)
        dist.barrier()
        if not dist.get_rank():
            waits.start()
        waits.join(PATIENCE_S)
        return first, attempt(all_gather, dist.get_rank(), group=group, timeout=TIMEOUT_S)

    assert all_alike(world.run(body).unwrap()) == ([[1, 1, 1, 1]], [0, 1, 2, 3])


def test_two_threads_that_meet_a_group_first_share_its_channel(world: rankdrill.World) -> None:
    class Slow(channel.Channel):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            time.sleep(0.2)

    def body() -> bool:
        group = dist.new_group([0, 1, 2, 3])
        with replaced(registry, "Channel", Slow):
            one, other = at_once(*[lambda: channel_of(group)] * 2)
        return isinstance(one, Slow) and one is other

    assert all_alike(world.run(body).unwrap()) is True


def test_threads_connect_in_any_order(world: rankdrill.World) -> None:
    """Over a store whose client is locked while it waits, as torchrun's is: no thread keeps others from connecting."""

    def delayed(real: Callable[..., None]) -> Callable[..., None]:
        # What rank 0 waits for in one thread, other ranks say late, and the other way round.
        def set_late(self: PolledStore, key: str, value: Any) -> None:
            if (dist.get_rank() > 0) == (threading.current_thread().name == "0"):
                time.sleep(0.3)
            real(self, key, value)

        return set_late

    def body() -> Any:
        store = partial(dist.TCPStore, "127.0.0.1", wait_for_workers=False)  # type: ignore[attr-defined]
        server = None if dist.get_rank() else store(0, is_master=True)
        port = all_gather(server and server.port, timeout=TIMEOUT_S)[0]
        client = server or store(port)
        groups = [dist.new_group([0, 1, 2, 3]) for _ in range(4)]
        with (
            replaced(torch_seam, "store_of", lambda group: c10d.PrefixStore(group.group_name, client)),
            replaced(PolledStore, "set", delayed(PolledStore.set)),
        ):
            began = time.monotonic()
            got = at_once(*(lambda g=g: attempt(all_gather, g.group_name, group=g, timeout=TIMEOUT_S) for g in groups))
            seconds = time.monotonic() - began
        dist.barrier()  # rank 0 keeps the store
        return [one == [group.group_name] * 4 for one, group in zip(got, groups, strict=True)], seconds

    for whole, seconds in world.run(body).unwrap():
        assert whole == [True] * 4
        assert seconds < TIMEOUT_S / 2


def test_groups_made_and_forgotten_by_many_threads(world: rankdrill.World) -> None:
    """torch's tables know the caller's groups, and none of ours."""
    tables = ("pg_map", "pg_names", "pg_group_ranks", "pg_backend_config", "pg_to_tag")

    def known() -> list[str]:
        # Of a group that was destroyed torch 2.13 itself keeps an empty list.
        by_tag = {tag: groups for tag, groups in c10d._world.tags_to_pg.items() if groups}
        return [repr(getattr(c10d._world, name)) for name in tables] + [repr(by_tag)]

    def ours(number: int) -> None:
        store = torch_seam.store_of(dist.group.WORLD)
        for turn in range(80):
            name = f"{dist.get_rank()}/{number}/{turn}"
            torch_seam.make_group(name, store, [dist.get_rank()], 0, "gloo", c10d.default_pg_timeout)

    def callers() -> None:
        for _ in range(20):
            group = dist.new_group([dist.get_rank()], use_local_synchronization=True)
            assert dist.get_process_group_ranks(group) == [dist.get_rank()]
            dist.destroy_process_group(group)

    def body() -> Any:
        before = known()
        raised = at_once(*(lambda number=number: ours(number) for number in range(3)), callers)
        dist.barrier()
        return raised, known() == before

    assert all_alike(world.run(body, deadline=DEADLINE_S).unwrap()) == ([None] * 4, True)
