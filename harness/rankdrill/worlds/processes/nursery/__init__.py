"""Templates forked from a process that outlives sessions, for whoever asks for it: see `server`."""

from rankdrill.worlds.processes.nursery.inheritance import Inheritance
from rankdrill.worlds.processes.nursery.key import nursery_key
from rankdrill.worlds.processes.nursery.reach import KEEP_VARIABLE, Nurseries, keep_seconds

__all__ = ["KEEP_VARIABLE", "Inheritance", "Nurseries", "keep_seconds", "nursery_key"]
