"""All that a gather is asked."""

from __future__ import annotations

from collections.abc import Sequence

from rankdrill.conformance.adapter import Adapter
from rankdrill.conformance.kit.questions.broken import ask_contained, ask_survives
from rankdrill.conformance.kit.questions.question import Ask, Question
from rankdrill.conformance.kit.questions.unbroken import ask_apart, ask_clean, ask_groups, ask_repeatable, ask_right
from rankdrill.conformance.promises import Promise

__all__ = ["questions_for"]

_ASK: dict[Promise, Ask] = {
    Promise.RIGHT: ask_right,
    Promise.REPEATABLE: ask_repeatable,
    Promise.GROUPS: ask_groups,
    Promise.CLEAN: ask_clean,
    Promise.APART: ask_apart,
    Promise.CONTAINED: ask_contained,
    Promise.SURVIVES: ask_survives,
}


def questions_for(adapter: Adapter, sizes: Sequence[int]) -> list[Question]:
    """All questions that make sense for `adapter`, in worlds of `sizes`, promise by promise."""
    found = [question for ask in _ASK.values() for question in ask(adapter, sizes)]
    return list({(question.promise, question.id): question for question in found}.values())
