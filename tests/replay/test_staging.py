"""What a verdict says of calls becomes part of the test: memory, updates, who comes first, what nobody came to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankdrill.replay import Score
from rankdrill.replay.score import Call, End, Part, Tensor
from rankdrill.step import ANYBODY, NEW_GROUP
from tests.replay.test_writing import BARRIER, ONES, REDUCE, body_of, score_of

FIRST = replace(REDUCE, number=0, group="1")
SENT = Call("send", tensors=ONES, peer=0, via="send", site="a.py:1")
TAKEN = Call("recv", tensors=ONES, peer=ANYBODY, via="recv", site="a.py:2")


def test_one_call_of_a_group_from_two_lines_is_one_way_or_the_other() -> None:
    wrong = replace(FIRST, tensors=(Tensor("int64", (4,)),), site="train.py:7")
    score = score_of((FIRST,), (wrong,), (FIRST,), (), verdict="datatype mismatch: 1", groups={"1": (0, 1, 2)})
    assert body_of(score)[1:-1] == [
        "if rank.index == 1:",
        "    dist.all_reduce(torch.ones(4, dtype=torch.int64), group=group_1)",
        "elif rank.index in (0, 2):",
    ]


def test_neighbours_are_told_by_how_far_they_are() -> None:
    ring = [(replace(SENT, peer=(rank + 1) % 4),) for rank in range(4)]
    assert body_of(score_of(*ring)) == ["dist.send(torch.ones(4), dst=(rank.index + 1) % 4)"]
    chain = [(replace(SENT, peer=rank + 1),) for rank in range(3)]
    assert "    dist.send(torch.ones(4), dst=rank.index + 1)" in body_of(score_of(*chain, ()))


def test_memory_is_touched_between_the_call_and_the_wait() -> None:
    touched = replace(REDUCE, touched="wrote", waits=False)
    assert body_of(score_of((REDUCE,), (touched,), verdict="input hazard: 1")) == [
        "held = torch.ones(4)",
        "work = dist.all_reduce(held, async_op=True)",
        "if rank.index == 1:",
        "    held.add_(1)",
        "work.wait()",
    ]


def test_memory_lies_as_it_lay() -> None:
    turned = replace(REDUCE, tensors=(Tensor("float32", (2, 3), (1, 2)),))
    assert body_of(score_of((turned,), (turned,))) == ["dist.all_reduce(torch.empty_strided((2, 3), (1, 2)))"]


def test_groups_made_again_and_again_are_made_where_they_were() -> None:
    calls = []
    for name in ("5", "6", "7"):
        calls += [Call(NEW_GROUP, members=(0, 1), site="a.py:3"), replace(FIRST, group=name)]
    groups = dict.fromkeys(("5", "6", "7"), (0, 1))
    assert body_of(score_of(tuple(calls), tuple(calls), verdict="leaked group: 0, 1", groups=groups)) == [
        "for _ in range(3):",
        "    group_1 = dist.new_group([0, 1])",
        "    dist.all_reduce(torch.ones(4), group=group_1)",
    ]


@pytest.mark.parametrize(
    ("first", "value", "lines"),
    [
        ("get", "'7'", ["got = rank.store.get('k')", "rank.store.set('k', str(float(got) + 1))"]),
        ("get", "'[1]'", ["got = rank.store.get('k')", "rank.store.set('k', got.decode() + ' and more')"]),
        ("check", "'me'", ["if not rank.store.check(['k']):", "    rank.store.set('k', str(rank.index))"]),
    ],
)
def test_what_is_set_follows_from_what_was_got(first: str, value: str, lines: list[str]) -> None:
    calls = (Call(first, key="k", site="a.py:1"), Call("set", key="k", value=value, site="a.py:2"))
    assert body_of(score_of(calls, calls, verdict="lost update: 0, 1")) == lines


def test_messages_say_who_sent_them_where_it_matters_who_comes_first() -> None:
    lines = body_of(score_of((TAKEN, TAKEN), (SENT,), (SENT,), verdict="message race: 0"))
    assert lines == [
        "if rank.index != 0:",
        "    dist.send(torch.ones(4) * rank.index, dst=0)",
        "else:",
        "    rows = torch.ones(2, 4)",
        "    for row in rows:",
        "        dist.recv(row)",
    ]


def test_who_waits_in_a_circle_would_come_to_the_other_half() -> None:
    waits = replace(TAKEN, peer=1)
    score = score_of((waits,), (replace(BARRIER, number=0),), verdict="deadlock: nobody in the majority")
    assert "    dist.send(torch.ones(4), dst=0)" in body_of(score)
    alone = replace(score, verdict="unmatched message: 1")
    assert not any("dist.send" in line for line in body_of(alone))


def test_a_key_that_was_deleted_is_asked_for_late() -> None:
    get, delete = Call("get", key="k", site="a.py:1"), Call("delete_key", key="k", site="a.py:2")
    parts = (Part(0, (delete,), End("returned")), Part(1, (get,)))
    assert "    time.sleep(0.5)" in body_of(Score(2, parts, {}, "missing key: 0"))


def test_a_lock_that_a_rank_has_itself_is_taken_twice() -> None:
    ends = {1: End("elsewhere", text="waiting for a lock or for another thread (futex)")}
    score = score_of((BARRIER,), (), verdict="deadlock: 1", ends=ends)
    assert body_of(score)[-4:] == [
        "if rank.index == 1:",
        "    lock = threading.Lock()",
        "    with lock:",
        "        lock.acquire()",
    ]
    assert body_of(replace(score, verdict="hang: 1"))[-1] == "    time.sleep(3600)"
