"""A real job, under any launcher, writes down its steps, for `rankdrill.explain` to read: see docs/record.md."""

from rankdrill.recording.record import record
from rankdrill.recording.recording import DEFAULT_BYTES, Recording

__all__ = ["DEFAULT_BYTES", "Recording", "record"]
