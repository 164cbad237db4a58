"""Dumps of large jobs: one rank leaves a call out, and all the others wait."""

from __future__ import annotations

from pathlib import Path

from tests.explain.flights import Flight, Op, torch_pickle

__all__ = ["write_job"]

_PLAYED = 4  # ranks that are played; the others' dumps are as those of the first


def write_job(directory: Path, ranks: int, entries: int, groups: int, odd: int) -> None:
    """Write the dumps of `ranks` ranks with so many entries each, over so many groups of all ranks, to `directory`.

    The rank `odd` has left one call out, half way.
    """
    ops = [
        Op("all_reduce", str(number % groups), ((64 + number % 7, 32),), line=10 + number % 5)
        for number in range(entries)
    ]
    left_out = entries // 2
    programs = {rank: ops if rank else [*ops[:left_out], *ops[left_out + 1 :]] for rank in range(_PLAYED)}
    described = {str(number): (f"group {number}", tuple(range(_PLAYED))) for number in range(1, groups)}
    flight = Flight(programs, described, ahead=entries)
    everybody = tuple(range(ranks))
    flight.groups = {name: (desc, everybody) for name, (desc, _) in flight.groups.items()}
    usual, other = torch_pickle(flight.dump(1)), torch_pickle(flight.dump(0))
    directory.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        (directory / f"rank_{rank}").write_bytes(other if rank == odd else usual)
