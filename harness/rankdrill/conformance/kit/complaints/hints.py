"""What the steps that ranks took say of a wrong answer."""

from __future__ import annotations

from pathlib import Path

from rankdrill.conformance.kit.questions.question import Question
from rankdrill.step import Kind
from rankdrill.worlds import Outcome

__all__ = ["hint_on"]

_DEFAULT = "default"  # what the group of all ranks is called in ledgers


def hint_on(question: Question, outcome: Outcome) -> str:
    """In a line; empty where they say nothing."""
    return _asks_all(question, outcome) or _writes_apart(outcome)


def _asks_all(question: Question, outcome: Outcome) -> str:
    """That a gather of a group asks everybody."""
    if any(call.members is None for call in question.calls):
        return ""
    taken = (record.step for rank in outcome.ranks for record in rank.ledger.records)
    steps = (step for step in taken if step.kind is Kind.COLLECTIVE)
    asks = next((step for step in steps if step.target == _DEFAULT), None)
    return f"a group was to gather, and it asks all ranks: {asks.op}{asks.where}" if asks is not None else ""


def _writes_apart(outcome: Outcome) -> str:
    """That no two ranks have written into the same directory."""
    where = [
        {
            str(Path(record.step.target).parent)
            for record in rank.ledger.records
            if record.step.kind is Kind.FILE and record.step.op == "write"
        }
        for rank in outcome.ranks
    ]
    if len(where) < 2 or not all(where) or len(set().union(*where)) < sum(map(len, where)):
        return ""
    return f"each rank writes into another directory: rank 0 into {min(where[0])!r}, rank 1 into {min(where[1])!r}"
