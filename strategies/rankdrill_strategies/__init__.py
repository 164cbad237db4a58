"""Hypothesis strategies for what crosses ranks, and the tools to judge what came out on the other side."""

from rankdrill_strategies.arrays import arrays
from rankdrill_strategies.big import big_payloads
from rankdrill_strategies.difference import explain_difference, same
from rankdrill_strategies.per_rank import per_rank
from rankdrill_strategies.picklables import picklables
from rankdrill_strategies.plans import plans
from rankdrill_strategies.scribble import scribble
from rankdrill_strategies.tensors import tensors
from rankdrill_strategies.worlds import worlds
from rankdrill_strategies.writing.code import as_code

__all__ = [
    "arrays",
    "as_code",
    "big_payloads",
    "explain_difference",
    "per_rank",
    "picklables",
    "plans",
    "same",
    "scribble",
    "tensors",
    "worlds",
]
