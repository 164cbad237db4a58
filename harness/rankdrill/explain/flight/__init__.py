"""Dumps of torch's flight recorder: read without running anything, and explained."""

from rankdrill.explain.flight.explained import explain_dumps, explain_job, read_dumps
from rankdrill.explain.flight.sources import looks_like_dump

__all__ = ["explain_dumps", "explain_job", "looks_like_dump", "read_dumps"]
