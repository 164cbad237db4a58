"""The kit holds gathers over MPI to their promises, by adapters of a few lines."""

from __future__ import annotations

from typing import Any

import pytest

from rankdrill.conformance import Setting
from rankdrill.conformance.kit.asking import Asking
from rankdrill.conformance.kit.questions.catalogue import questions_for
from rankdrill.conformance.kit.suite import described
from tests.mpi.installed import needs_mpi

pytestmark = needs_mpi


def right(payload: Any, at: Setting) -> list[Any]:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD.Create_group(MPI.COMM_WORLD.Get_group().Incl(at.members))
    try:
        received: list[Any] = comm.allgather(payload)
        return received
    finally:
        comm.Free()


def of_all_ranks(payload: Any) -> list[Any]:
    """Takes the ranks of the world for those of the group that calls."""
    from mpi4py import MPI

    received: list[Any] = MPI.COMM_WORLD.allgather(payload)
    return received


def from_the_first(payload: Any) -> list[Any]:
    """Has all send to rank 0, takes what comes first, and sends it on in that order."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if comm.rank:
        comm.send(payload, 0)
        received: list[Any] = comm.bcast(None)
        return received
    return list(comm.bcast([comm.recv() for _ in range(comm.size - 1)] + [payload]))


def complaints(gather: Any, *words: str) -> dict[str, str]:
    adapter = described(gather, mpi=True)
    asked = [
        each for each in questions_for(adapter, (3,)) if any(word in f"{each.promise} {each.id}" for word in words)
    ]
    with Asking(adapter) as asking:
        return {f"{each.promise} {each.id}": asking.ask(each) or "" for each in asked}


@pytest.mark.nightly
def test_a_sound_gather_has_no_findings() -> None:
    told = complaints(right, "small dict", "ASCII", "groups", "row", "after calls that worked")
    assert len(told) >= 8
    assert {asked: complaint for asked, complaint in told.items() if complaint} == {}


@pytest.mark.parametrize(("gather", "words"), [(of_all_ranks, "alone"), (from_the_first, "small dict")])
def test_a_mistaken_one_has(gather: Any, words: str) -> None:
    assert any(complaints(gather, words).values())
