"""Jobs of many ranks, cut down to those that their verdict needs: the same comes of it, and who is who is told."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from click.testing import CliRunner, Result

from rankdrill import World
from rankdrill.cli import main
from rankdrill.replay import Score, bearable, cut_down, fitted, play, score_from_json, score_of_dumps, score_of_outcome
from rankdrill.replay.needed import FEW, MOST, needed
from rankdrill.replay.score import Call, Part, Tensor
from rankdrill.step import NEW_GROUP
from tests.explain.flights import Flight, Op, write
from tests.explain.test_flight_verdicts import met, ranks, rounds, sent, summed
from tests.recording.jobs import explained, job

DEADLINE_S = 60.0
HOSTS, OF_A_HOST = 32, 8
GROUPS = {str(1 + host): (f"host {host}", tuple(range(8 * host, 8 * host + 8))) for host in range(HOSTS)}
ACROSS = {str(100 + local): (f"across {local}", tuple(range(local, 256, 8))) for local in range(OF_A_HOST)}


def replayed(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["replay", *map(str, arguments)])


def in_groups(rank: int) -> list[Op]:
    """Rank 137 leaves a call out on the group of its host, and then everybody waits for somebody."""
    step = [
        summed(10, 4, str(1 + rank // OF_A_HOST)),
        summed(11, 8, str(1 + rank // OF_A_HOST)),
        summed(12, 4, str(100 + rank % OF_A_HOST)),
        sent(13, str(1 + rank // OF_A_HOST)),
    ]
    return [op for at, op in enumerate([*step * 4, met()]) if rank != 137 or at != 9]


def test_of_256_ranks_the_group_is_kept_in_which_a_call_is_left_out(tmp_path: Path) -> None:
    dumps = write(Flight(ranks(256, in_groups), GROUPS | ACROSS), tmp_path / "dumps")
    test = tmp_path / "test_hang.py"
    done = replayed("--as-test", test, dumps)
    assert done.exit_code == 0, done.output
    told = "248 of 256 ranks are left out: ranks 136 to 143 are 0 to 7 here; rank 137 is 1"
    assert told in done.output
    assert told in " ".join((ast.get_docstring(ast.parse(test.read_text())) or "").split())
    assert ", which is 1 here" in done.output
    assert "here:  " in done.output.splitlines()[-1]
    assert "@pytest.mark.ranks(8)" in test.read_text()


@pytest.mark.parametrize(
    ("program", "until", "found"),
    [
        (lambda rank: rounds(20), {700: 31, 701: 31}, "missing call: 700, 701, which are 3, 4 here"),
        pytest.param(
            lambda rank: [*rounds(4), summed(44, 8 if rank == 5 else 4)],
            {},
            "size mismatch: 5, which is 3 here",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            lambda rank: [*rounds(4), *[summed(44)] * (rank == 999)],
            {},
            "extra call: 999, which is 3 here",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            lambda rank: [summed(), met() if rank % 2 else sent()],
            {},
            "call ordering: nobody in the majority",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            lambda rank: [*rounds(2), met() if rank < 300 else sent()],
            {},
            "call ordering: 0, 1, 2, which are 0, 1, 2 here",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_of_1024_in_one_group_the_culprits_are_kept_and_a_few_others(
    program: Callable[[int], list[Op]], until: dict[int, int], found: str, tmp_path: Path
) -> None:
    dumps = write(Flight(ranks(1024, program), until=until), tmp_path / "dumps")
    done = replayed(dumps)
    assert done.exit_code == 0, done.output
    assert f"there: {found}" in done.output
    assert " of 1024 ranks are left out" in done.output


def test_a_lost_rank_of_many_is_killed_here(tmp_path: Path) -> None:
    flight = Flight(ranks(256, lambda rank: rounds(4)), until={200: 5}, gone=frozenset({200}))
    score = score_of_dumps([write(flight, tmp_path)], most=8)
    assert (score.world_size, score.ranks, score.verdict) == (4, (0, 1, 2, 200), "died: 3")
    assert play(score, deadline=DEADLINE_S).verdict == "died: 3"


def test_who_waits_for_one_who_is_left_out_goes_on_here(tmp_path: Path) -> None:
    """Rank 1 is in a call to which rank 40 never comes, and its next one is issued, which is that of the others."""

    def program(rank: int) -> list[Op]:
        return [summed(), *[summed(11, group="1")] * (rank == 1), summed(12, 8 if rank == 5 else 4)]

    score = score_of_dumps([write(Flight(ranks(64, program), {"1": ("pair", (1, 40))}, ahead=4), tmp_path)], most=8)
    assert score.ranks == (0, 1, 2, 5)
    assert [call.site for call in score.parts[1].calls] == ["/job/train.py:10", "/job/train.py:12"]
    assert play(score, deadline=DEADLINE_S).verdict == score.verdict == "size mismatch: 3"


def skips(rank: int, odd: int) -> None:
    groups = [dist.new_group(list(range(first, first + 4))) for first in range(0, dist.get_world_size(), 4)]
    mine = groups[rank // 4]
    for turn in range(4):
        if (rank, turn) != (odd, 2):
            dist.all_reduce(torch.ones(8), group=mine)
        dist.broadcast(torch.ones(4), rank // 4 * 4 + 3, group=mine)
    dist.barrier()


def test_what_was_recorded_is_cut_down_too(tmp_path: Path) -> None:
    with job(skips, 8, tmp_path / "recorded", 6) as running:
        explained(running.directory, lambda found: any(cause.finding.culprits for cause in found.causes))
    done = replayed("--ranks", 4, tmp_path / "recorded")
    assert done.exit_code == 0, done.output
    assert "4 of 8 ranks are left out: ranks 4 to 7 are 0 to 3 here; rank 6 is 2" in done.output
    assert "there: missing call: 6, which is 2 here\nhere:  missing call: 2" in done.output


@pytest.mark.nightly
def test_so_is_what_a_run_has_written(tmp_path: Path) -> None:
    with World(12) as world:
        score = score_of_outcome(world.run(lambda: skips(dist.get_rank(), 9), deadline=DEADLINE_S))
    assert score.verdict == "missing call: 9"
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"format": "rankdrill run", "score": score.as_fields()}))
    done = replayed("--ranks", 5, file)
    assert done.exit_code == 0, done.output
    assert "8 of 12 ranks are left out: ranks 8 to 11 are 0 to 3 here; rank 9 is 1" in done.output
    assert "there: missing call: 9, which is 1 here\nhere:  missing call: 1" in done.output


def test_roots_that_differ_differ_here_too() -> None:
    with World(12) as world:
        outcome = world.run(
            lambda: dist.broadcast(torch.ones(2), 9 if dist.get_rank() == 7 else 8), deadline=DEADLINE_S
        )
    score = score_of_outcome(outcome)
    assert score.verdict == "root mismatch: 7"
    few = fitted(score, 4)
    assert (few.world_size, few.ranks) == (4, (0, 1, 2, 7))
    assert play(few, deadline=DEADLINE_S).verdict == few.verdict == "root mismatch: 3"


def test_who_is_root_for_one_who_is_left_out_is_not_who_is_root_already() -> None:
    parts = tuple(Part(rank, (Call("broadcast", root=root),)) for rank, root in ((1, 1), (3, 0)))
    cut = cut_down(Score(4, parts, {}, "root mismatch: nobody in the majority"), (1, 3))
    assert [call.root for part in cut.parts for call in part.calls] == [0, 1]


@pytest.mark.parametrize("most", [4, 8, 24, 128])
@pytest.mark.parametrize("guilty", [1, 2, 7, 100, 500])
def test_the_culprits_are_in_the_minority_here_too(guilty: int, most: int) -> None:
    culprits, others = range(guilty), range(guilty, 1024)
    kept = needed(1024, most, culprits, [culprits, others])
    there = [rank for rank in kept if rank in culprits]
    assert there
    assert len(there) < len(kept) - len(there)
    assert len(kept) <= min(most, FEW)


@pytest.mark.parametrize("most", [2, 4, 7, 8])
def test_without_a_majority_there_is_none_here(most: int) -> None:
    kept = needed(1024, most, (), [range(0, 1024, 2), range(1, 1024, 2)])
    assert len(kept) <= most
    assert sum(rank % 2 for rank in kept) * 2 in (len(kept), len(kept) - 1)


def test_a_circle_is_kept_whole_where_it_can_be() -> None:
    assert needed(1024, 64, (), [(5,), (9,), (13,)]) == (5, 9, 13)


def test_nothing_is_cut_where_the_machine_can_bear_it() -> None:
    assert 2 <= bearable() <= MOST
    score = Score(4, (), {}, "missing call: 1")
    assert fitted(score, 4) is score


SEVERAL = tuple(Tensor("float32", (length,)) for length in (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("call", "here"),
    [
        (Call("all_reduce", tensors=SEVERAL[:1]), Call("all_reduce", tensors=SEVERAL[:1])),
        (Call("reduce_scatter", tensors=SEVERAL), Call("reduce_scatter", tensors=(SEVERAL[1], SEVERAL[3]))),
        (
            Call("reduce_scatter_tensor", tensors=(Tensor("int8", (12, 5)),)),
            Call("reduce_scatter_tensor", tensors=(Tensor("int8", (6, 5)),)),
        ),
        (
            Call("all_to_all_single", tensors=(Tensor("int8", (10,)),), sends=(1, 2, 3, 4), receives=(4, 3, 2, 1)),
            Call("all_to_all_single", tensors=(Tensor("int8", (6,)),), sends=(2, 4), receives=(3, 1)),
        ),
        (Call("broadcast", root=3), Call("broadcast", root=1)),
        (Call("broadcast", root=2), Call("broadcast", root=0)),
        (Call("send", peer=3), Call("send", peer=1)),
        (Call("send", peer=2), None),
        (Call("all_reduce", "alone"), None),
        (Call("all_reduce", "both", root=-1), Call("all_reduce", "both")),
        (Call(NEW_GROUP, members=(0, 1, 3)), Call(NEW_GROUP, members=(0, 1))),
        (Call(NEW_GROUP, members=(0, 1)), None),
        (Call("get", key="by 1"), Call("get", key="by 1")),
        (Call("get", key="by 2"), None),
    ],
)
def test_a_call_is_that_of_those_who_are_left(call: Call, here: Call | None) -> None:
    parts = [Part(rank, (Call("set", key=f"by {rank}"), *[call] * (rank == 1))) for rank in range(4)]
    score = Score(4, tuple(parts), {"alone": (0, 1), "both": (0, 1, 3)}, "missing call: 1")
    cut = cut_down(score, (1, 3))
    assert cut.world_size == 2
    assert cut.parts[0].calls[1:] == ((here,) if here is not None else ())
    assert cut.groups == {"both": (0, 1)}
    assert cut.verdict == "missing call: 0"
    assert score_from_json(cut.to_json()) == cut


@pytest.mark.parametrize("count", ["0", "-1", "5000"])
def test_a_number_of_ranks_that_cannot_be_is_refused(count: str, tmp_path: Path) -> None:
    done = replayed("--ranks", count, write(Flight(ranks(2, lambda rank: rounds(1))), tmp_path))
    assert done.exit_code == 2
    assert "a world has 1 to 1024 ranks" in done.output
