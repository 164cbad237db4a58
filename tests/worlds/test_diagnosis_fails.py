"""Where rankdrill's own diagnosis fails a run is told as well as it can be without, not by rankdrill's traceback."""

from __future__ import annotations

from typing import Never

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.errors import ContractBroken, DiagnosisFailed, RankLeft
from rankdrill.worlds import Verdict, found
from rankdrill.worlds.processes.watching import at_the_end


def fails(*_: object) -> Never:
    raise KeyError("a rank that nobody knows")


# A finding that is asked for anew is looked for anew.
@pytest.mark.filterwarnings("ignore::rankdrill.errors.DiagnosisFailed")
def test_a_hang_is_told_without_its_cause(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def body() -> None:
        if dist.get_rank() == 0:
            dist.barrier()

    monkeypatch.setattr(found, "cause_of_hang", fails)
    with pytest.warns(DiagnosisFailed, match=r"KeyError: 'a rank that nobody knows', in fails at test_diagnosis_fails"):
        outcome = two.run(body, deadline=30)
    assert outcome.verdict is Verdict.HANG
    assert outcome.culprits == (1,)
    with pytest.raises(ExceptionGroup) as caught:
        outcome.unwrap()
    left, victim = caught.value.exceptions
    assert isinstance(left, RankLeft)
    assert "rank 1 returned without entering collective.barrier #0" in str(left)
    assert "rank 0" in str(victim)


@pytest.mark.filterwarnings("ignore::rankdrill.errors.DiagnosisFailed")
def test_of_a_mismatch_it_says_what_the_rank_did_that_noticed(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def body() -> None:
        dist.all_reduce(torch.ones(2 + dist.get_rank()))

    monkeypatch.setattr(found, "traced_back", fails)
    with pytest.warns(DiagnosisFailed, match=r"a defect of rankdrill"):
        outcome = two.run(body, deadline=30)
    (finding,) = outcome.findings
    assert finding.kind is FindingKind.SIZE
    with pytest.raises(ExceptionGroup) as caught:
        outcome.unwrap()
    assert isinstance(caught.value.exceptions[0], ContractBroken)


def test_a_run_that_ended_well_ends_well(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def body() -> int:
        if dist.get_rank() == 0:
            dist.send(torch.ones(1), 1)
        else:
            dist.recv(torch.zeros(1))
        return dist.get_rank()

    monkeypatch.setattr(at_the_end, "message_race", fails)
    with pytest.warns(DiagnosisFailed, match=r"please report it"):
        outcome = two.run(body, deadline=30)
    assert outcome.unwrap() == [0, 1]
