"""What is left of a job, read and explained: recorded ledgers, and dumps from elsewhere."""

from rankdrill.explain.explanation import Cause, Confidence, Explanation, Place, places_of

__all__ = ["Cause", "Confidence", "Explanation", "Place", "places_of"]
