"""A score as a pytest file: what a person would have written, and nothing that somebody else has."""

from __future__ import annotations

import ast
import json
from dataclasses import replace

import pytest

from rankdrill.errors import UsageError
from rankdrill.replay import Score, pytest_file, score_from_json
from rankdrill.replay.score import Call, End, Part, Tensor
from rankdrill.step import NEW_GROUP

ONES = (Tensor("float32", (4,)),)
REDUCE = Call("all_reduce", tensors=ONES, reduce_op="sum", via="all_reduce", site="train.py:9")
BARRIER = Call("barrier", site="train.py:11")


def body_of(score: Score) -> list[str]:
    """The lines of the test, without where they are from."""
    source = pytest_file(score)
    ast.parse(source)
    lines = source.partition("def test_again(rank):\n")[2].splitlines()
    return [line.removeprefix("    ").partition("  #")[0] for line in lines]


def score_of(*calls: tuple[Call, ...], verdict: str = "", ends: dict[int, End] | None = None, **more: object) -> Score:
    parts = tuple(Part(rank, its, (ends or {}).get(rank, End())) for rank, its in enumerate(calls))
    return Score(len(calls), parts, more.pop("groups", {}), verdict, **more)  # type: ignore[arg-type]


def test_what_repeats_is_a_loop() -> None:
    again = (REDUCE, BARRIER) * 20
    assert body_of(score_of(again, again)) == [
        "for _ in range(20):",
        "    dist.all_reduce(torch.ones(4))",
        "    dist.barrier()",
    ]


def test_what_one_leaves_out_is_a_condition_and_what_nobody_else_came_to_is_none() -> None:
    without, with_it = (REDUCE, REDUCE, BARRIER), (REDUCE, REDUCE, REDUCE)
    assert body_of(score_of(with_it, without, with_it, verdict="missing call: 1")) == [
        "dist.all_reduce(torch.ones(4))",
        "dist.all_reduce(torch.ones(4))",
        "if rank.index != 1:",
        "    dist.all_reduce(torch.ones(4))",
        "dist.barrier()",
    ]


def test_one_too_many_comes_before_what_the_others_do() -> None:
    more, others = (REDUCE, REDUCE), (REDUCE, BARRIER)
    assert body_of(score_of(others, others, more, verdict="extra call: 2")) == [
        "dist.all_reduce(torch.ones(4))",
        "if rank.index == 2:",
        "    dist.all_reduce(torch.ones(4))",
        "dist.barrier()",
    ]


def test_different_calls_are_two_ways() -> None:
    other = replace(BARRIER, op="monitored_barrier")
    assert body_of(score_of((REDUCE,), (other,), verdict="call ordering: nobody in the majority")) == [
        "if rank.index == 0:",
        "    dist.all_reduce(torch.ones(4))",
        "else:",
        "    dist.monitored_barrier()",
    ]


def test_arguments_that_differ_are_chosen_by_the_rank() -> None:
    largest = replace(REDUCE, reduce_op="max")
    assert body_of(score_of((REDUCE,), (REDUCE,), (largest,))) == [
        "dist.all_reduce(torch.ones(4), op=dist.ReduceOp.MAX if rank.index == 2 else dist.ReduceOp.SUM)"
    ]


def test_groups_are_made_first_where_all_make_them() -> None:
    made = Call(NEW_GROUP, members=(0, 2), site="train.py:3")
    inside = replace(REDUCE, group="1")
    lines = body_of(score_of((made, inside), (made,), (made, inside), groups={"1": (0, 2)}))
    assert lines[0] == "group_1 = dist.new_group([0, 2])"
    assert lines[-1] == "    dist.all_reduce(torch.ones(4), group=group_1)"


def test_groups_that_only_some_make_are_made_where_they_were() -> None:
    first, second = Call(NEW_GROUP, members=(0, 1), site="a.py:3"), Call(NEW_GROUP, members=(1, 0), site="a.py:3")
    inside = replace(REDUCE, group="1")
    assert body_of(score_of((first, inside), (second, inside), groups={"1": (0, 1)})) == [
        "group_1 = dist.new_group([0, 1] if rank.index == 0 else [1, 0])",
        "dist.all_reduce(torch.ones(4), group=group_1)",
    ]


@pytest.mark.parametrize(
    ("end", "line"),
    [
        (End("killed", 9), "    os.kill(os.getpid(), 9)"),
        (End("exited", 3), "    os._exit(3)"),
        (End("raised", text="ValueError: no 'data'"), "    raise RuntimeError(\"ValueError: no 'data'\")"),
        (End("elsewhere"), "    time.sleep(3600)"),
    ],
)
def test_a_rank_ends_as_it_ended(end: End, line: str) -> None:
    assert body_of(score_of((REDUCE,), (REDUCE,), ends={1: end}))[-2:] == ["if rank.index == 1:", line]


def test_messages_are_issued_and_waited_for() -> None:
    sent = Call("send", tensors=ONES, peer=1, via="isend", site="a.py:1")
    taken = Call("recv", tensors=ONES, peer=0, via="recv", site="a.py:2")
    lines = body_of(score_of((sent, BARRIER), (taken, BARRIER)))
    assert "    works.append(dist.isend(torch.ones(4), dst=1))" in lines
    assert "    dist.recv(torch.ones(4), src=0)" in lines
    assert lines.index("while works: works.pop(0).wait()") < lines.index("dist.barrier()")


def test_a_score_is_itself_again_as_json() -> None:
    made = Call(NEW_GROUP, members=(0, 1))
    score = score_of((made, REDUCE), (BARRIER,), verdict="missing call: 1", ends={1: End("killed", 9)}, cut=("x",))
    assert score_from_json(score.to_json()) == score


@pytest.mark.parametrize(
    "hostile",
    [
        {"op": "barrier)\n__import__('os')#"},
        {"op": "all_reduce", "tensors": [{"dtype": "x)+print(1)", "shape": [1]}]},
        {"op": "all_reduce", "tensors": [{"dtype": "int8", "shape": [-1]}]},
        {"op": "all_reduce", "tensors": [{"dtype": "int8", "shape": ["1"]}]},
        {"op": "barrier", "root": "0) + print(1"},
        {"op": NEW_GROUP, "members": [7]},
        {"group": "default"},
        7,
    ],
)
def test_what_is_no_score_is_refused(hostile: object) -> None:
    said = {"world_size": 2, "groups": {}, "parts": [{"rank": 0, "calls": [hostile]}]}
    with pytest.raises(UsageError, match="this is no score"):
        score_from_json(json.dumps(said))


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"world_size": 1e9, "parts": [], "groups": {}}', "[" * 5000])
def test_neither_is_anything_else(text: str) -> None:
    with pytest.raises(UsageError, match="this is no score"):
        score_from_json(text)


KNOWN = ("dist.barrier", "dist.all_reduce", "dist.new_group", "torch.ones", "rank.store.set", "rank.store.add")
INTO_THE_FILE = '"""\nprint("run")\n#\\'


def test_nothing_that_was_recorded_is_run() -> None:
    calls = [
        {"op": "barrier", "site": INTO_THE_FILE},
        {"op": "all_reduce", "group": INTO_THE_FILE, "via": INTO_THE_FILE, "reduce_op": INTO_THE_FILE},
        {"op": "set", "key": INTO_THE_FILE, "value": "'+print(1)+'"},
        {"op": "add", "key": "k", "value": "+print(1)"},
        {"op": INTO_THE_FILE.strip('"\n#\\()').replace('"', "_").replace("(", "_")},
    ]
    end = {"how": "raised", "text": INTO_THE_FILE}
    said = {
        "world_size": 2,
        "groups": {INTO_THE_FILE: [0]},
        "verdict": INTO_THE_FILE,
        "cut": [INTO_THE_FILE],
        "parts": [{"rank": 0, "calls": calls, "end": end}, {"rank": 1, "calls": []}],
    }
    tree = ast.parse(pytest_file(score_from_json(json.dumps(said))))
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert "print" not in called
    assert called <= {*KNOWN, "RuntimeError", "pytest.mark.ranks"}
