"""The drill any gather can be put through: adapters that describe gathers, cases, and judgements on what came."""

from rankdrill.conformance.adapter import Adapter, Setting, everything
from rankdrill.conformance.case import Case, CaseResult, Judgement
from rankdrill.conformance.drill import Drill
from rankdrill.conformance.gives import NOT_LOOKED_AT
from rankdrill.conformance.kit.suite import conformance
from rankdrill.conformance.payloads import PAYLOADS, TENSOR_PAYLOADS, Payload
from rankdrill.conformance.promises import Promise
from rankdrill.conformance.runner import Limits

__all__ = [
    "NOT_LOOKED_AT",
    "PAYLOADS",
    "TENSOR_PAYLOADS",
    "Adapter",
    "Case",
    "CaseResult",
    "Drill",
    "Judgement",
    "Limits",
    "Payload",
    "Promise",
    "Setting",
    "conformance",
    "everything",
]
