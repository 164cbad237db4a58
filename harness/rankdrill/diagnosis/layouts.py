"""Tensors with gaps that a backend would misread: what is told of them."""

from __future__ import annotations

from rankdrill.diagnosis.finding import Finding, FindingKind, side_of
from rankdrill.step import Step

__all__ = ["gaps_on"]


def gaps_on(rank: int, step: Step, shown: str, strides: tuple[int, ...]) -> Finding:
    """What is wrong where `rank` gives `step` a tensor, `shown` in short, with such `strides`."""
    did = f"gives {step.call} a {shown} with strides {strides}, which gloo takes for contiguous; give it .contiguous()"
    # Its number is of no use: the others may never come to it, and are not compared.
    return Finding(FindingKind.LAYOUT, step.call, "strides", (side_of([rank], did, [step.site]),), (rank,))
