"""What a recorded job left, explained: `rankdrill.record` wrote it, or is writing it still."""

from rankdrill.explain.recording.explaining import explain_recording, standing_in
from rankdrill.explain.recording.reading import is_recording

__all__ = ["explain_recording", "is_recording", "standing_in"]
