"""What counts as strictly right, and how the errors of plain processes are read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.cataloguing.reading import Ended, read

from tests.catalogue.programs import Program, Rank, correct, mistake
from tests.catalogue.scoring import Judged, Verdict, lines_in, tally


def body(rank: Rank) -> None:
    assert rank.index != 1  # culprit


def harmless(rank: Rank) -> None:
    assert rank.index >= 0


ONE_OF_THREE = mistake("missing call", culprits=(1,), ranks=3)(body)
TWO_AT_ODDS = mistake("missing call", between=(0, 1), ranks=3, also=("extra call",))(body)
FINE = correct(ranks=3)(harmless)
LINE = body.__code__.co_firstlineno + 1
RIGHT = Verdict(
    noticed=True,
    seconds=0.5,
    kind="missing call",
    ranks=frozenset({1}),
    accuses=True,
    lines=frozenset({LINE}),
    findings=1,
)
MISMATCH = "Rank {0} is running collective: A, but Rank {1} is running collective: B"


def test_a_right_verdict() -> None:
    assert Judged(ONE_OF_THREE, RIGHT).wrong_in == ()
    assert Judged(TWO_AT_ODDS, replace(RIGHT, ranks=frozenset({0, 1}), accuses=False, kind="extra call")).strict
    assert Judged(FINE, Verdict(noticed=False, seconds=0.1)).right


@pytest.mark.parametrize(
    ("verdict", "wrong"),
    [
        (replace(RIGHT, kind="extra call"), "kind"),
        (replace(RIGHT, kind=""), "kind"),
        (replace(RIGHT, ranks=frozenset({1, 2})), "ranks"),
        (replace(RIGHT, accuses=False), "ranks"),
        (replace(RIGHT, lines=frozenset({LINE + 1})), "line"),
        (replace(RIGHT, findings=2), "findings"),
        (replace(RIGHT, noticed=False), "noticed"),
    ],
    ids=["another kind", "no kind", "an innocent rank", "nobody accused", "another line", "two findings", "nothing"],
)
def test_a_wrong_verdict(verdict: Verdict, wrong: str) -> None:
    assert Judged(ONE_OF_THREE, verdict).wrong_in == (wrong,)


def test_who_accuses_one_of_two_that_disagree_is_wrong() -> None:
    assert Judged(TWO_AT_ODDS, RIGHT).wrong_in == ("ranks",)
    assert Judged(TWO_AT_ODDS, replace(RIGHT, ranks=frozenset({0, 1}))).wrong_in == ("ranks",)


def test_a_tool_without_kinds_is_not_asked_for_them() -> None:
    assert Judged(ONE_OF_THREE, replace(RIGHT, kind=None)).strict


def test_a_false_alarm_is_wrong() -> None:
    assert not Judged(FINE, RIGHT).right


def test_the_tally() -> None:
    missed = Verdict(noticed=False, seconds=3)
    judged = [
        Judged(ONE_OF_THREE, RIGHT),
        Judged(ONE_OF_THREE, replace(RIGHT, findings=3, seconds=1.5)),
        Judged(ONE_OF_THREE, missed),
        Judged(ONE_OF_THREE, missed),
        Judged(FINE, missed),
        Judged(FINE, RIGHT),
    ]
    figures = tally(judged)
    assert (figures.mistakes, figures.correct) == (4, 2)
    assert (figures.recall, figures.strict, figures.specificity) == (0.5, 0.25, 0.5)
    assert (figures.findings, figures.seconds) == (2, 1.0)
    assert tally([]).recall is None


def test_lines_are_read_from_tracebacks_and_from_places() -> None:
    text = f'  File "{__file__}", line 12, in body\n  File "/elsewhere/other.py", line 13\n'
    assert lines_in(text, ONE_OF_THREE.file) == {12}
    assert lines_in("rank 1 at tests/catalogue/test_scoring.py:41 in body, at other.py:2", ONE_OF_THREE.file) == {41}


def traceback(program: Program, error: str) -> str:
    return f'Traceback (most recent call last):\n  File "{program.file}", line {LINE}, in body\n{error}\n'


def test_whoever_fails_by_itself_is_accused() -> None:
    lost = Ended(1, traceback(ONE_OF_THREE, "RuntimeError: Connection closed by peer [127.0.0.1]:1"))
    verdict = read(ONE_OF_THREE, [lost, Ended(1, traceback(ONE_OF_THREE, "KeyError: 'x'")), Ended(None, "")], 1.0)
    assert Judged(ONE_OF_THREE, verdict).strict
    assert verdict.kind is None


def test_whoever_is_named_most_often_is_accused() -> None:
    ended = [
        Ended(1, traceback(ONE_OF_THREE, f"RuntimeError: {MISMATCH.format(0, 1)}")),
        Ended(1, traceback(ONE_OF_THREE, f"RuntimeError: {MISMATCH.format(1, 0)}")),
        Ended(1, traceback(ONE_OF_THREE, f"RuntimeError: {MISMATCH.format(2, 1)}")),
    ]
    assert Judged(ONE_OF_THREE, read(ONE_OF_THREE, ended, 1.0)).strict


def test_whoever_did_not_come_is_accused_last_of_all() -> None:
    absent = Ended(1, "RuntimeError: [Rank 0]: Ranks 1 failed to pass monitoredBarrier in 10 ms\n")
    verdict = read(ONE_OF_THREE, [absent, Ended(None, ""), Ended(None, "")], 1.0)
    assert (verdict.ranks, verdict.lines) == (frozenset({1}), frozenset())


def test_of_a_hang_nothing_can_be_read() -> None:
    verdict = read(ONE_OF_THREE, [Ended(None, "")] * 3, 5.0)
    assert verdict.noticed
    assert verdict.ranks == frozenset()
    assert not read(ONE_OF_THREE, [Ended(0, "warning: Connection closed by peer")] * 3, 5.0).noticed
