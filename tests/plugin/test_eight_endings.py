"""Eight ways for ranks to end that other harnesses report as passed, name the victim for, or never end on."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

# Every test is followed by one that must pass: the next test runs, whatever the one before did to its world.
NEXT = """
@pytest.mark.ranks(4)
def test_next(rank):
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total == 4
"""


def ended(run: Run, body: str, *, marks: str = "ranks(4)") -> tuple[str, str]:
    """Run `body` as a test on 4 ranks; returns its outcome and its failure text. The next test must pass."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    ran = run(f"@pytest.mark.{marks}\ndef test_it(rank):\n{lines}\n{NEXT}")
    assert ran.outcome("test_next") == "passed", ran.screen
    assert set(ran.cases) == {"test_it", "test_next"}
    outcome = ran.outcome("test_it")
    return outcome, ran.failure("test_it") if outcome != "passed" else ""


def test_a_rank_killed_by_sigkill_fails_the_test(run: Run) -> None:
    outcome, text = ended(run, "if rank.index == 3: os.kill(os.getpid(), signal.SIGKILL)")
    assert outcome == "failed"
    assert text.startswith("rank 3 killed by SIGKILL")


def test_a_rank_that_exits_fails_the_test(run: Run) -> None:
    outcome, text = ended(run, "if rank.index == 3: os._exit(3)")
    assert outcome == "failed"
    assert text.startswith("rank 3 exited with code 3")


def test_a_segmentation_fault_fails_the_test(run: Run) -> None:
    outcome, text = ended(run, "if rank.index == 1: import ctypes; ctypes.string_at(0)")
    assert outcome == "failed"
    assert text.startswith("rank 1 killed by SIGSEGV")


def test_one_rank_alone_that_skips_is_an_error_that_lists_who_did_what(run: Run) -> None:
    outcome, text = ended(run, "if rank.index == 2: pytest.skip('no such thing here')")
    assert outcome == "failed"
    assert "ranks disagree: rank 2 skipped (no such thing here); ranks 0, 1, 3 passed" in text


def test_a_rank_stuck_outside_while_others_are_in_a_barrier(run: Run) -> None:
    outcome, text = ended(run, "if rank.index == 1: time.sleep(1000)\nrank.barrier()", marks="ranks(4, deadline=2)")
    assert outcome == "failed"
    assert text.startswith("rank 1 was still running at the deadline")
    assert "in test_it" in text, "the stack of the stuck rank says where it sleeps"
    assert "wait in collective.barrier #0" in text
    assert text.index("rank 1 was") < text.index("victims:") < text.index("ranks 0, 2, 3 wait in")


def test_a_rank_killed_inside_a_barrier_names_the_barrier_and_not_a_victim(run: Run) -> None:
    body = """
if rank.index == 0:
    time.sleep(0.5)
if rank.index == 3:
    import threading
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
rank.barrier()
"""
    outcome, text = ended(run, body)
    assert outcome == "failed"
    assert re.match(r"rank 3 killed by SIGKILL, by os\.kill at \S+ in test_it, in collective\.barrier #0", text)
    victims = text.partition("victims:")[2]
    assert len([line for line in victims.splitlines() if re.match(r"  ranks? [\d, ]*\b1\b", line)]) == 1
    assert "rank 3 " not in victims.partition("to run it again")[0].replace("for rank 3", "")


def test_an_assertion_fails_on_one_rank_while_others_wait(run: Run) -> None:
    outcome, text = ended(run, "assert rank.index != 1\nrank.barrier()")
    assert outcome == "failed"
    assert text.startswith("rank 1 failed: assert 1 != 1")
    assert "where 1 = <rank 1 of 4>.index" in text, "assertions are rewritten on ranks"
    assert "ranks 0, 2, 3 wait in collective.barrier #0 on 'default' for rank 1" in text


def test_a_rank_that_returns_without_the_collective(run: Run) -> None:
    outcome, text = ended(run, "if rank.index != 1: rank.barrier()")
    assert outcome == "failed"
    assert text.startswith("missing call: rank 1 leaves out barrier #0 on 'default', at test_it.py:")
    assert "ranks 0, 2, 3 wait in barrier #0 on 'default'" in text
