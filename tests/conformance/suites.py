"""What `rankdrill drill --path` is given: a class of tests, and an adapter."""

from __future__ import annotations

from rankdrill.conformance import Adapter, conformance
from tests.conformance.population import by_torch, in_latin_1

__all__ = ["OF_NUMBERS", "RIGHT", "TestInLatin1"]

TestInLatin1 = conformance(in_latin_1, ranks=(2,), promises={"right", "groups"})
RIGHT = Adapter("right", by_torch)
OF_NUMBERS = Adapter("of numbers", by_torch, takes="numbers")
