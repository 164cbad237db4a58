"""What torch's own gather answers to the same question: how much the question asks."""

from __future__ import annotations

from rankdrill.conformance.kit.asking import Asking
from rankdrill.conformance.kit.questions import Question
from rankdrill.conformance.paths import FOREIGN

__all__ = ["ask_torch"]


def ask_torch(question: Question) -> str:
    """One line, to be added to a complaint."""
    with Asking(FOREIGN["torch.all_gather_object"]) as asking:
        complaint = asking.ask(question)
    return f"(torch.distributed.all_gather_object {'fails here, too' if complaint else 'comes through this'})"
