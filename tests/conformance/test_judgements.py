"""Every judgement, from a gather that earns it."""

from __future__ import annotations

import pytest

from rankdrill.conformance import Adapter, Case, CaseResult, Drill, Judgement, Limits
from tests.conformance import broken


def drill_one(adapter: Adapter, size: int = 2) -> CaseResult:
    cases = [Case(adapter.name, size, "small")]
    (result,) = Drill({adapter.name: adapter}, cases, limits=Limits(deadline=20), jobs=1).results()
    return result


@pytest.mark.parametrize(
    ("adapter", "judgement", "why"),
    [
        (broken.RIGHT, Judgement.RIGHT, "every rank received the right result"),
        (broken.RAISES_BEFORE, Judgement.ASYMMETRIC, "rank 1 raised ValueError, rank 0 never came out"),
        (broken.RAISES_AFTER, Judgement.ASYMMETRIC, "rank 1 raised ValueError, rank 0 returned"),
        (broken.FORGETS_TO_SEND, Judgement.HANG, "rank 0 waits in collective.recv"),
        (broken.WRONG_ORDER, Judgement.WRONG, "rank 1: result[0]['rank'] is 1, not 0"),
        (broken.SWALLOWS, Judgement.WRONG, "rank 0: result[1] is None, not {'rank': 1"),
        (broken.LEAVES_A_FILE, Judgement.LEAKED, "on disk: rank-0.pkl; on disk: rank-1.pkl"),
        (broken.LEAVES_A_FILE_OPEN, Judgement.LEAKED, "rank-0.pkl (deleted)"),
        (broken.ADVANCES, Judgement.LEAKED, "rank 0: the global generator of random advanced"),
        (broken.DIES, Judgement.DIED, "rank 1 killed by SIGKILL"),
        (broken.RAISES_EVERYWHERE, Judgement.UNNAMED, "every rank raised RuntimeError, which names no rank"),
        (broken.BLAMES, Judgement.UNNAMED, "nothing was broken, yet every rank raised EncodeError"),
        (broken.WORKS_ONCE, Judgement.SPENT, "rank 0: EncodeError"),
    ],
    ids=lambda value: value.name if isinstance(value, Adapter) else "",
)
def test_a_broken_gather_gets_its_judgement(adapter: Adapter, judgement: Judgement, why: str) -> None:
    result = drill_one(adapter)
    assert result.judgement is judgement, result
    assert why in result.why
    assert len(result.ranks) == 2
