"""What came of all questions to a gather, or of those that are wanted."""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from rankdrill.conformance.adapter import Adapter
from rankdrill.conformance.kit.asking import Asking
from rankdrill.conformance.kit.questions.catalogue import questions_for
from rankdrill.conformance.kit.questions.question import Question
from rankdrill.conformance.promises import Promise
from rankdrill.errors import UsageError

__all__ = ["CONFORMED", "Answer", "Wanted", "answers", "conformed"]

CONFORMED = "rankdrill_conformance"
"""The attribute of a class of tests that has its adapter and the sizes of its worlds."""


@dataclass(frozen=True)
class Wanted:
    """Questions to the gather that is called `path`, in worlds of `sizes`: all of them, or those `named`, each by its
    promise or by ``promise: question``. Raises `UsageError` for a name of none.
    """

    path: str
    adapter: Adapter
    sizes: tuple[int, ...]
    named: Collection[str] = ()

    def questions(self) -> list[Question]:
        """The questions that are wanted."""
        found = questions_for(self.adapter, self.sizes)
        known = {str(question.promise) for question in found} | {_name(question) for question in found}
        for name in self.named:
            if name not in known:
                asked = [promise for promise in Promise if promise in known]
                near = [each for each in sorted(known) if name.lower() in each.lower()][:4] or asked
                raise UsageError(f"--ask {name!r}: {self.path} is asked nothing of that name; try {', '.join(near)}")
        return [
            question
            for question in found
            if not self.named or _name(question) in self.named or str(question.promise) in self.named
        ]


@dataclass(frozen=True)
class Answer:
    """What came of one question: what is wrong, or nothing; `promised` is whether the gather promises better."""

    path: str
    question: Question
    complaint: str
    promised: bool
    sizes: tuple[int, ...]
    elapsed: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether a promise is broken."""
        return self.promised and bool(self.complaint)

    @property
    def name(self) -> str:
        """What was asked."""
        return _name(self.question)

    @property
    def repeat(self) -> str:
        """The command that asks exactly this."""
        sizes = ",".join(map(str, self.sizes))
        return shlex.join(["rankdrill", "drill", "--path", self.path, "--ranks", sizes, "--ask", self.name])


def answers(wanted: Wanted) -> Iterator[Answer]:
    """Ask, one question after another; no more about a promise that enough answers have shown to be broken."""
    with Asking(wanted.adapter) as asking:
        for question in wanted.questions():
            if asking.has_enough(question.promise):
                continue
            began = time.monotonic()
            complaint = asking.ask(question)
            promised = question.promise in wanted.adapter.promises
            yield Answer(wanted.path, question, complaint, promised, wanted.sizes, time.monotonic() - began)


def conformed(found: object) -> tuple[Adapter, tuple[int, ...]] | None:
    """The adapter and the sizes of a class that `conformance` made; None for anything else."""
    its: tuple[Adapter, tuple[int, ...]] | None = getattr(found, CONFORMED, None)
    return its


def _name(question: Question) -> str:
    return f"{question.promise}: {question.id}"
