"""Watching a run: who reported, who died, who can only wait for ever."""

from rankdrill.worlds.processes.watching.at_the_end import at_one, pending_messages
from rankdrill.worlds.processes.watching.breaks import Breaks
from rankdrill.worlds.processes.watching.deaths import Inquest
from rankdrill.worlds.processes.watching.ending import Ending
from rankdrill.worlds.processes.watching.stacks import stacks_of, where_ranks_are
from rankdrill.worlds.processes.watching.supervise import Supervision

__all__ = ["Breaks", "Ending", "Inquest", "Supervision", "at_one", "pending_messages", "stacks_of", "where_ranks_are"]
