"""The drill any gather can be put through: adapters that describe gathers, cases, and judgements on what came."""

from rankdrill.conformance.adapter import Adapter, Setting, everything
from rankdrill.conformance.bench import Limits
from rankdrill.conformance.case import Case, CaseResult, Judgement
from rankdrill.conformance.drill import Drill
from rankdrill.conformance.kit.suite import conformance
from rankdrill.conformance.promises import Promise

__all__ = [
    "Adapter",
    "Case",
    "CaseResult",
    "Drill",
    "Judgement",
    "Limits",
    "Promise",
    "Setting",
    "conformance",
    "everything",
]
