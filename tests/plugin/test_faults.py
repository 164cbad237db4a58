"""Faults in the marker: they strike at their step; one that does not strike fails the test and says why."""

from __future__ import annotations

from collections.abc import Callable

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]


def test_survivors_of_a_planned_kill_decide_the_verdict(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(3, faults=["rank 2: kill before collective.barrier #2"])
def test_survivors_cope(rank):
    rank.barrier()
    with pytest.raises(RuntimeError):
        rank.barrier()

@pytest.mark.ranks(3, faults=["rank 2: kill before collective.barrier #2"])
def test_survivors_do_not(rank):
    rank.barrier()
    rank.barrier()
""")
    assert ran.outcome("test_survivors_cope") == "passed"
    assert ran.outcome("test_survivors_do_not") == "failed"
    assert "rank 2 killed" not in ran.failure("test_survivors_do_not").splitlines()[0]


def test_a_fault_that_does_not_fire_fails_the_test_and_names_the_steps_taken(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(2, faults=["rank 1: delay(0.1) before collective.barrier #3"])
def test_it(rank):
    rank.barrier()
    dist.all_reduce(torch.ones(1))
""")
    text = ran.failure("test_it")
    assert "rank 1: delay(0.1) before collective.barrier #3 did not fire: rank 1 took only 1 such step" in text
    assert "collective.all_reduce" in text


def test_a_skipped_collective_is_found_at_once_and_blamed_on_its_rank(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(3, faults=["rank 1: skip at collective.barrier"])
def test_it(rank):
    rank.barrier()
""")
    assert "rank 1 passed without entering collective.barrier #0" in ran.failure("test_it")
    assert float(str(ran.cases["test_it"].get("time"))) < 20, "long before the deadline of 30 s"


def test_files_of_the_test_can_be_torn(run: Run) -> None:
    ran = run("""
import json

@pytest.mark.ranks(2, faults=['rank 1: torn after file.replace on "*.json"'])
def test_it(rank, tmp_path):
    final = tmp_path / f"{rank.index}.json"
    draft = tmp_path / f"{rank.index}.part"
    draft.write_text(json.dumps({"epoch": 3}))
    os.replace(draft, final)
    if rank.index == 1:
        with pytest.raises(json.JSONDecodeError):
            json.loads(final.read_text())
    else:
        assert json.loads(final.read_text()) == {"epoch": 3}
""")
    ran.result.assert_outcomes(passed=1)


def test_faults_strike_the_body_and_not_its_fixtures(run: Run) -> None:
    ran = run("""
@pytest.fixture
def met(rank):
    rank.barrier()

@pytest.mark.ranks(2, faults=["rank 0: exit(9) before collective.barrier"])
def test_it(met, rank):
    if rank.index == 1:
        with pytest.raises(RuntimeError):
            rank.barrier()
    else:
        rank.barrier()
""")
    ran.result.assert_outcomes(passed=1)


def test_a_plan_that_does_not_parse_is_one_line_and_exit_code_2(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(2, faults=["rank 1: kil before collective.barrier"])
def test_it(rank): ...
""")
    assert ran.result.ret == 2
    assert "kill" in ran.screen


def test_a_plan_for_a_rank_that_is_not_there(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(2, faults=["rank 5: kill before collective.barrier"])
def test_it(rank): ...
""")
    assert ran.result.ret == 2
    assert "names rank 5, but the world has 2 ranks: 0 to 1" in ran.screen
