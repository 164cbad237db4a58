"""Watching a run: who reported, who died, who can only wait for ever."""

from rankdrill.worlds.processes.watching.supervise import Ending, Supervision

__all__ = ["Ending", "Supervision"]
