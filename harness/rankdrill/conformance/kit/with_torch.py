"""What torch's own gather answers to the same question: how much the question asks."""

from __future__ import annotations

from rankdrill.conformance.kit.asking import Asking
from rankdrill.conformance.kit.questions.question import Question
from rankdrill.conformance.paths import FOREIGN

__all__ = ["Torch"]


class Torch:
    """Asks torch, once for each question; to be closed."""

    def __init__(self) -> None:
        self._asking = Asking(FOREIGN["torch.all_gather_object"])
        self._said: dict[Question, str] = {}

    def close(self) -> None:
        """Throw its worlds away."""
        self._asking.close()

    def ask(self, question: Question) -> str:
        """One line, to be added to a complaint."""
        if question not in self._said:
            self._said[question] = self._asking.ask(question)
        fails = "fails here, too" if self._said[question] else "comes through this"
        return f"(torch.distributed.all_gather_object {fails})"
