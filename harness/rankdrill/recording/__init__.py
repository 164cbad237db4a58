"""A real job, under any launcher, writes down its steps, for `rankdrill.explain` to read: see docs/record.md."""

from rankdrill.recording.recording import DEFAULT_BYTES, Recording
from rankdrill.recording.starting import record

__all__ = ["DEFAULT_BYTES", "Recording", "record"]
