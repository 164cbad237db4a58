"""What one can read off the analyzer's findings in dumps of the flight recorder, beside what failed, died or hung.

Read with good will, as errors are (`reading`): of each group the first mismatch alone, since calls that follow may be
paired wrongly, as the analyzer says itself; and over all groups whoever is named most often. It compares every rank
with the first it has and calls those that differ culprits: where most of a group are culprits the others are accused.
Where half of it are, or where groups name different ranks, nobody is. Of kinds it tells sizes and types apart; that
calls differ, or that ranks do not join, may be any of several, and it is not asked which. Where it finds nothing,
errors are read as those of plain gloo are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.cataloguing.flight_seam import Mismatch
from benchmarks.cataloguing.reading import Ended, read
from tests.catalogue.programs import Program
from tests.catalogue.scoring import Verdict, lines_in

__all__ = ["KIND_OF", "read_with_dumps"]

KIND_OF = {"SIZE_OR_SYNTAX_MISMATCH": "size mismatch", "COLLECTIVE_DTYPE_MISMATCH": "datatype mismatch"}


def read_with_dumps(
    program: Program, ended: Sequence[Ended], seconds: float, found: Sequence[Mismatch], printed: str
) -> Verdict:
    """The verdict of somebody who sees `ended`, and what the analyzer has `found` in the dumps and `printed`."""
    plain = read(program, ended, seconds)
    firsts = _first_of_each_group(found)
    named = Counter(rank for each in firsts for rank in _at_fault(each))
    if not plain.noticed or not named:
        return replace(plain, text=f"{printed}\n{plain.text}" if plain.noticed else plain.text)
    ranks = frozenset(rank for rank, times in named.items() if times == max(named.values()))
    shown = [text for each in firsts for text in _stacks(each, ranks)] + [ended[rank].errors for rank in ranks]
    return replace(
        plain,
        kind=_kind(firsts),
        ranks=ranks,
        accuses=len(ranks) < len(ended) and any(ranks <= _at_fault(each) and not _undecided(each) for each in firsts),
        lines=frozenset(line for text in shown for line in lines_in(text, program.file)),
        findings=1,
        text="\n".join([*map(_told, firsts), plain.text]),
    )


def _first_of_each_group(found: Sequence[Mismatch]) -> list[Mismatch]:
    """Those for which a dump is wanting only where there are no others."""
    firsts = list({each.group: each for each in reversed(found)}.values())
    return [each for each in firsts if not each.undumped] or firsts


def _at_fault(mismatch: Mismatch) -> frozenset[int]:
    """The ranks that are odd: those that are named, the others if these are fewer, all where it is half and half."""
    if mismatch.undumped:
        return mismatch.undumped
    if mismatch.absent:
        return _fewer(mismatch.absent, mismatch.expected - mismatch.absent)
    if _undecided(mismatch):
        return mismatch.expected
    return _fewer(frozenset(mismatch.errors), mismatch.expected - set(mismatch.errors))


def _fewer(named: frozenset[int], others: frozenset[int]) -> frozenset[int]:
    return others if 0 < len(others) < len(named) else named


def _undecided(mismatch: Mismatch) -> bool:
    return not mismatch.absent and not mismatch.undumped and 2 * len(mismatch.errors) == len(mismatch.expected)


def _stacks(mismatch: Mismatch, ranks: frozenset[int]) -> list[str]:
    """The stacks that are shown for `ranks`: of a call they did not make, those of whoever made it."""
    if mismatch.undumped:
        return []
    own = [stack for rank, stack in mismatch.frames.items() if rank in ranks]
    return own if own and not ranks - set(mismatch.frames) else [*own, mismatch.shown]


def _kind(firsts: Sequence[Mismatch]) -> str | None:
    types = {kind for each in firsts for kind in (each.errors.values() or [""])}
    return KIND_OF.get(types.pop()) if len(types) == 1 else None


def _told(mismatch: Mismatch) -> str:
    if mismatch.undumped:
        return f"{mismatch.call} on {mismatch.group}: cannot decide without dumps of ranks {sorted(mismatch.undumped)}"
    if mismatch.absent:
        return f"{mismatch.call} on {mismatch.group}: not all ranks join, {sorted(mismatch.absent)} are missing"
    told = ", ".join(f"rank {rank} {kind}" for rank, kind in sorted(mismatch.errors.items()))
    return f"{mismatch.call} on {mismatch.group}: culprits {told}"
