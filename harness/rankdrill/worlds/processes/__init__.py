"""Ranks as processes, forked from a template that has torch imported."""

from rankdrill.worlds.processes.engine import ProcessEngine

__all__ = ["ProcessEngine"]
