"""Dumps of torch's flight recorder: read without running anything, and explained."""

from rankdrill.explain.flight.explained import explain_dumps, read_dumps, read_of
from rankdrill.explain.flight.sources import looks_like_dump

__all__ = ["explain_dumps", "looks_like_dump", "read_dumps", "read_of"]
