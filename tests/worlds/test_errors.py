"""What a body raises, as its caller sees it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

from rankdrill import World
from rankdrill.errors import RankVictim, RemoteError
from rankdrill.worlds import Outcome, Status, Verdict
from tests.fixtures import fixture
from tests.golden import agrees, steady
from tests.worlds import bodies


def group_of(outcome: Outcome) -> BaseExceptionGroup[BaseException]:
    with pytest.raises(BaseExceptionGroup) as caught:
        outcome.unwrap()
    return caught.value


def test_the_same_error_of_several_ranks_is_one(four: World) -> None:
    def body() -> None:
        raise KeyError("missing")

    outcome = four.run(body)
    assert outcome.verdict is Verdict.TOGETHER
    assert sorted(outcome.culprits) == [0, 1, 2, 3]
    group = group_of(outcome)
    assert isinstance(group, ExceptionGroup)
    (error,) = group.exceptions
    assert isinstance(error, KeyError)
    (note,) = error.__notes__
    assert note.startswith("raised on ranks ")
    assert sorted(note.removeprefix("raised on ranks ").split(", ")) == ["0", "1", "2", "3"]


def test_different_errors_stay_apart(four: World) -> None:
    def body() -> None:
        raise ValueError(f"rank {dist.get_rank() // 2} of two")

    assert sorted(map(str, group_of(four.run(body)).exceptions)) == ["rank 0 of two", "rank 1 of two"]


def test_the_traceback_of_the_rank_is_the_cause(two: World) -> None:
    (error,) = group_of(two.run(bodies.raise_needs_two)).exceptions
    assert error.__cause__ is not None
    text = str(error.__cause__)
    assert 'raise NeedsTwoError("one", "two")' in text
    assert "harness/rankdrill" not in text, "frames of rankdrill say nothing about the body"


@pytest.mark.parametrize(
    ("body", "name", "message"),
    [
        (bodies.raise_needs_two, "NeedsTwoError", "one and two"),
        (bodies.raise_silent, "SilentError", "<its message raises ValueError>"),
    ],
)
def test_an_error_that_does_not_pickle_keeps_name_and_message(
    two: World, body: object, name: str, message: str
) -> None:
    outcome = two.run(body)  # type: ignore[arg-type]
    error = outcome.ranks[1].error
    assert outcome.ranks[1].status is Status.RAISED
    assert isinstance(error, RemoteError)
    assert (error.type_name, str(error)) == (name, f"{name}: {message}")
    assert name in error.traceback


def test_an_error_that_only_the_rank_can_load(two: World, tmp_path: Path) -> None:
    (tmp_path / "only_there_either.py").write_text("class Odd(Exception):\n    pass\n")

    def body(place: str) -> None:
        sys.path.append(place)
        raise __import__("only_there_either").Odd("hello")

    error = two.run(body, str(tmp_path)).ranks[0].error
    assert isinstance(error, RemoteError)
    assert str(error) == "Odd: hello"


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_exits_are_errors_of_the_body(two: World, kind: type[BaseException]) -> None:
    def body() -> None:
        raise kind("3")

    outcome = two.run(body)
    assert [type(rank.error) for rank in outcome.ranks] == [kind, kind]
    assert not isinstance(group_of(outcome), ExceptionGroup), "`except Exception` must not swallow it"
    assert two.run(bodies.rank).unwrap() == [0, 1]


def test_ctrl_c_within_a_rank_is_what_it_is_anywhere(two: World) -> None:
    def body() -> str:
        import signal
        import time

        try:
            signal.raise_signal(signal.SIGINT)
            time.sleep(10)
        except KeyboardInterrupt:
            return "interrupted"
        return "ignored"

    assert two.run(body).unwrap() == ["interrupted"] * 2


def test_culprits_first_then_victims(four: World) -> None:
    def body() -> None:
        if dist.get_rank() == 2:
            raise AssertionError("wrong by one")
        dist.barrier()

    outcome = four.run(body)
    assert outcome.culprits == (2,)
    assert outcome.victims == (0, 1, 3)
    first, *others = group_of(outcome).exceptions
    assert isinstance(first, AssertionError)
    assert [type(error) for error in others] == [RankVictim] * 3
    assert [error.rank for error in others if isinstance(error, RankVictim)] == [0, 1, 3]
    assert "waits in collective.barrier" in str(others[0])
    assert "for rank 2" in str(others[0])


def test_unwrapping_twice_says_the_same(two: World) -> None:
    outcome = two.run(bodies.raise_needs_two)
    assert len(group_of(outcome).exceptions[0].__notes__) == len(group_of(outcome).exceptions[0].__notes__) == 1


def test_what_a_script_prints_reads_as_it_was_accepted() -> None:
    folder = fixture("reports")
    done = subprocess.run(
        [sys.executable, str(folder / "train.py")], capture_output=True, text=True, timeout=120, cwd=folder
    )
    assert (done.returncode, done.stdout) == (0, "")
    agrees(steady(done.stderr, folder), folder / "train.txt")
