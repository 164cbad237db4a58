"""What cannot be is refused in one clear line with the value and the remedy, when tests are collected."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from rankdrill.errors import WorldError
from rankdrill.worlds.gpus import count_gpus
from rankdrill.worlds.processes.client import TemplateClient
from tests.plugin.conftest import Ran

Run = Callable[..., Ran]


@pytest.mark.parametrize(
    ("marker", "says"),
    [
        ("ranks(0)", "@pytest.mark.ranks(0): a world has 1 rank or more; give a whole number"),
        ("ranks('four')", "@pytest.mark.ranks('four'): a world has 1 rank or more"),
        ("ranks()", "@pytest.mark.ranks() names no world size; write @pytest.mark.ranks(4)"),
        ("ranks(2, deadline=0)", "deadline=0 is no time to wait; give seconds above 0"),
        ("ranks(2, dedline=3)", "@pytest.mark.ranks has no option 'dedline'; it has backend, device, deadline"),
    ],
)
def test_a_wrong_marker_is_one_clear_line_and_exit_code_2(run: Run, marker: str, says: str) -> None:
    ran = run(f"@pytest.mark.{marker}\ndef test_it(rank): ...")
    assert ran.result.ret == 2
    assert says in ran.screen
    assert "Traceback" not in ran.screen


NO_GPU = pytest.mark.skipif(count_gpus() > 0, reason="asks for a GPU where there is none")


@NO_GPU
def test_a_gpu_where_there_is_none(run: Run) -> None:
    ran = run("@pytest.mark.ranks(2, backend='nccl', device='cuda')\ndef test_it(rank): ...")
    assert "need a GPU, which they may share, and torch finds none on this machine" in ran.screen
    assert ran.result.ret == 2


def test_a_skipped_test_may_ask_for_gpus_that_are_not_there(run: Run) -> None:
    ran = run("""
@pytest.mark.skipif(True, reason="no GPUs here")
@pytest.mark.ranks(64, backend="nccl", device="cuda")
def test_it(rank): ...
""")
    ran.result.assert_outcomes(skipped=1)


def test_a_size_of_its_own_that_the_marker_does_not_name(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(2)
@pytest.mark.parametrize("world_size", [2, 4])
def test_it(world_size): ...
""")
    assert "test_it[4]: it parametrizes world_size=4 itself, which the marker does not name; write every" in ran.screen
    assert ran.result.ret == 2


def test_sizes_that_the_marker_names_and_values_of_the_test_itself_leave_out(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("world_size", [2])
def test_it(world_size): ...

def pytest_generate_tests(metafunc):
    if metafunc.function.__name__ == "test_by_hook":
        metafunc.parametrize("world_size", [1])

@pytest.mark.ranks(1, 2)
def test_by_hook(world_size): ...
""")
    left_out = "the marker names world_size={}, which the test's own values for it, {}, leave out; let both name the"
    assert f"::test_it: {left_out.format(1, 2)} same sizes, or give the sizes in the marker alone" in ran.screen
    assert f"::test_by_hook: {left_out.format(2, 1)} same sizes" in ran.screen
    assert ran.result.ret == 2


def test_rank_without_the_marker_says_what_is_missing(run: Run) -> None:
    ran = run("def test_it(rank): ...")
    assert "the fixture 'rank' is for tests marked @pytest.mark.ranks(n); mark this one" in ran.screen


def test_a_test_that_ranks_collect_differently_says_so(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(2)
@pytest.mark.parametrize("pid", [os.getpid()])
def test_it(pid): ...
""")
    story = ran.failure(next(iter(ran.cases)))
    assert "did not collect" in story
    assert re.search(r"\[\d+\] stand there", story), "what a rank has in its place"
    assert "draw them with a fixed seed" in story


def test_a_test_that_ranks_do_not_collect_at_all_says_so(run: Run) -> None:
    ran = run("""
if os.environ.get("RANK") is None:
    @pytest.mark.ranks(2)
    def test_it(): ...
""")
    story = ran.failure(next(iter(ran.cases)))
    assert "did not collect" in story
    assert "whether it is collected differs between processes" in story


@NO_GPU
def test_a_world_that_cannot_be_is_refused_for_methods_of_unittest_too(run: Run) -> None:
    ran = run("""
import unittest

@pytest.mark.ranks(2, backend="nccl", device="cuda")
class TestCase(unittest.TestCase):
    def test_it(self): ...
""")
    assert ran.result.ret == pytest.ExitCode.INTERRUPTED
    assert "TestCase::test_it: ranks with backend='nccl' and device='cuda' need a GPU" in ran.screen


def test_ranks_that_cannot_be_had_are_an_error_of_the_test_and_not_of_the_session(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise WorldError("the template process did not start")

    monkeypatch.setattr(TemplateClient, "fork", broken)
    ran = run("""
@pytest.mark.ranks(5)
def test_it(rank): ...

def test_plain(): ...
""")
    ran.result.assert_outcomes(passed=1, errors=1)
    assert "the template process did not start" in ran.failure("test_it")
