"""Faults: plans of what breaks where, and the strikes that break it."""

from rankdrill.faults.arming import Armed, arm
from rankdrill.faults.check import domain
from rankdrill.faults.fault import Fault
from rankdrill.faults.firing import struck, unfired
from rankdrill.faults.grammar import parse_fault
from rankdrill.faults.plan import Plan
from rankdrill.faults.registry import ENDING, FAMILIES, STRIKES
from rankdrill.faults.steps import OPS
from rankdrill.faults.strike import Argument, Strike, When
from rankdrill.faults.where import What, Where

__all__ = [
    "ENDING",
    "FAMILIES",
    "OPS",
    "STRIKES",
    "Argument",
    "Armed",
    "Fault",
    "Plan",
    "Strike",
    "What",
    "When",
    "Where",
    "arm",
    "domain",
    "parse_fault",
    "struck",
    "unfired",
]
