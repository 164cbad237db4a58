"""What a body may change in its process, and how a warm rank becomes like a fresh one again."""

from rankdrill.worlds.processes.state.condition import Condition
from rankdrill.worlds.processes.state.generators import Generators, drawn_since, reseed, seed_of

__all__ = ["Condition", "Generators", "drawn_since", "reseed", "seed_of"]
