"""A process of its own that watches the recorded ones of its host, and writes down where they hang: docs/record.md."""

from rankdrill.watchdog.answering import STACKS, answer_in
from rankdrill.watchdog.starting import start_watchdog

__all__ = ["STACKS", "answer_in", "start_watchdog"]
