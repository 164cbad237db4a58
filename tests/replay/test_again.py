"""The same comes of it again: programs with one mistake each, run, written down, and played from that alone."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from click.testing import CliRunner

from rankdrill import Outcome, World
from rankdrill.cli import main
from rankdrill.replay import play, score_from_json, score_of_outcome
from rankdrill.worlds.job import Job
from tests.catalogue.drilling import play_program
from tests.catalogue.programs import Program, catalogue, modules
from tests.covering import thinned
from tests.recording.jobs import explained, job

LEAST_ALIKE = 0.95
CHOSEN = (
    "datatypes.half_for_single",
    "datatypes.in_a_sub_group",
    "deadlocks.a_key_behind_a_barrier",
    "deadlocks.groups_turned_round_in_the_fiftieth_step",
    "extra.one_more_batch",
    "extra.once_more_in_the_fiftieth_step",
    "group_leaks.pairs_for_each_evaluation",
    "hazards.zeroed_before_it_is_reduced",
    "layouts.every_third_column",
    "lost.killed_in_the_fiftieth_step",
    "missing.cached_on_one_rank",
    "missing.validation_on_some",
    "operators.norms_of_another_order",
    "ordering.objects_against_tensors",
    "races.first_come_is_taken_for_the_first",
    "requests.all_but_the_last_bucket",
    "roots.scattered_by_another",
    "sizes.hands_out_less_than_is_expected",
    "sharded.redistributed_by_one",
    "stores.the_neighbour_of_the_last",
    "training.batches_that_do_not_divide",
)
PROGRAMS = {program.name: program for program in catalogue("mistakes")}


@pytest.fixture(scope="module")
def worlds() -> Iterator[dict[int, World]]:
    made: dict[int, World] = {}
    yield made
    for world in made.values():
        world.discard()


def kinds_of(program: Program) -> tuple[str, ...]:
    assert program.truth is not None
    return program.truth.kinds


def outcome_of(program: Program, worlds: dict[int, World]) -> Outcome:
    world = worlds.get(program.ranks) or worlds.setdefault(program.ranks, World(program.ranks, preload=modules()))
    with tempfile.TemporaryDirectory() as directory:
        return world.run_job(Job(play_program, (program.place, directory), with_context=True), deadline=20)


@pytest.mark.parametrize("name", thinned(CHOSEN, 2))
def test_the_same_comes_of_it(name: str, worlds: dict[int, World]) -> None:
    score = score_from_json(score_of_outcome(outcome_of(PROGRAMS[name], worlds)).to_json())
    played = play(score, deadline=20)
    assert played.verdict == score.verdict, played.source
    assert score.kind in (*kinds_of(PROGRAMS[name]), "died")


@pytest.mark.nightly
def test_the_same_comes_of_nearly_all(worlds: dict[int, World]) -> None:
    others = {}
    tried = [name for name, program in PROGRAMS.items() if program.runs_here]
    for name in tried:
        score = score_of_outcome(outcome_of(PROGRAMS[name], worlds))
        if not (played := play(score, deadline=10)).as_told(score):
            others[name] = f"{score.verdict}, here {played.verdict}"
    assert len(others) <= (1 - LEAST_ALIKE) * len(tried), others


def test_what_calls_alone_do_not_bring_about_is_said(tmp_path: Path) -> None:
    """Right as long as nobody is two seconds late: that goes by what a rank makes of what it has received."""

    def body() -> None:
        seen, value = list[int](), torch.zeros(1, dtype=torch.long)
        if dist.get_rank() == 0:
            for _ in range(2):
                dist.recv(value)
                seen.append(int(value))
            assert seen == [1, 2]
        else:
            time.sleep(2.0 * (dist.get_rank() - 1))
            dist.send(torch.tensor([dist.get_rank()]), dst=0)

    with World(3) as world:
        score = score_of_outcome(world.run(body, deadline=20))
    assert score.kind == "message race"
    run = tmp_path / "run.json"
    run.write_text(json.dumps({"format": "rankdrill run", "score": score.as_fields()}))
    done = CliRunner().invoke(main, ["replay", str(run)])
    assert done.exit_code == 3, done.output
    assert "there: message race: 0\nhere:  all returned\ncannot be told: " in done.output


def test_from_the_command_line_and_as_a_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def body() -> None:
        for step in range(5):
            if step != 3 or dist.get_rank() != 1:
                dist.all_reduce(torch.ones(2))

    with World(3) as world:
        score = score_of_outcome(world.run(body, deadline=20))
    Path("run.json").write_text(json.dumps({"format": "rankdrill run", "score": score.as_fields()}))
    done = CliRunner().invoke(main, ["replay", "--as-test", "test_it.py", "run.json"])
    assert done.exit_code == 0, done.output
    assert "there: missing call: 1\nhere:  missing call: 1" in done.output
    assert "if rank.index != 1:" in Path("test_it.py").read_text()
    Path("run.json").write_text(json.dumps(score.as_fields() | {"verdict": "missing call: 2"}))
    assert CliRunner().invoke(main, ["replay", "run.json"]).exit_code == 1


def leave_one_out(rank: int) -> None:
    for turn in range(4):
        if (rank, turn) != (2, 1):
            dist.all_reduce(torch.ones(8))
    dist.barrier()


def test_from_what_was_recorded_of_a_job(tmp_path: Path) -> None:
    """From a hang to a test: recorded, killed, explained, played."""
    with job(leave_one_out, 4, tmp_path / "recorded") as running:
        found = explained(running.directory, lambda found: any(cause.finding.culprits for cause in found.causes))
    assert found.causes[0].finding.culprits == (2,)
    test = tmp_path / "test_it.py"
    done = CliRunner().invoke(main, ["replay", "--as-test", str(test), str(tmp_path / "recorded")])
    assert done.exit_code == 0, done.output
    assert "there: missing call: 2\nhere:  missing call: 2" in done.output
    assert f"{test}:" in done.output, "lines are those of the file that stays"
    assert "if rank.index != 2:" in test.read_text()
    asked = CliRunner().invoke(main, ["explain", str(tmp_path / "recorded")])
    assert asked.exit_code == 1
    assert "missing call: rank 2 leaves out all_reduce #3" in asked.output


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "No such file or directory"), ("{", "Expecting property name"), ("{}", "this is no score")],
)
def test_what_is_no_file_of_that_kind_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "run.json"
    if text is not None:
        file.write_text(text)
    done = CliRunner().invoke(main, ["replay", str(file)])
    assert done.exit_code == 2
    assert said in done.output
    assert "give a file that rankdrill run --json wrote" in done.output
