"""Objects as the Python that makes them, to be pasted into a test."""

from rankdrill_strategies.writing.printing import pasteable

__all__ = ["pasteable"]
