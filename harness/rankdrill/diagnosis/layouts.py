"""Tensors that lie in memory as a call cannot use them: with gaps, or one in the place of several."""

from __future__ import annotations

from rankdrill.diagnosis.finding import Finding, FindingKind, side_of
from rankdrill.step import Step

__all__ = ["gaps_on", "shared_on"]


def gaps_on(rank: int, step: Step, shown: str, strides: tuple[int, ...]) -> Finding:
    """What is wrong where `rank` gives `step` a tensor, `shown` in short, with such `strides`."""
    did = f"gave {step.call} a {shown} with strides {strides}, which gloo takes for contiguous; give it .contiguous()"
    # Its number is of no use: the others may never come to it, and are not compared.
    return Finding(FindingKind.LAYOUT, step.call, "strides", (side_of([rank], did, [step.site]),), (rank,))


def shared_on(rank: int, step: Step, shown: str, parts: int) -> Finding:
    """What is wrong where `rank` gives `step` one tensor, `shown` in short, for the parts of that many ranks."""
    did = f"gave {step.call} one {shown} for the parts of {parts} ranks, of which one is left; make a tensor for each"
    return Finding(FindingKind.LAYOUT, step.call, "outputs", (side_of([rank], did, [step.site]),), (rank,))
