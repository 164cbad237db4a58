"""What a recorded job left, explained: `rankdrill.record` wrote it, or is writing it still."""

from rankdrill.explain.recording.explaining import Look, explain_recording, look_at, look_into, standing_in
from rankdrill.explain.recording.reading import is_recording

__all__ = ["Look", "explain_recording", "is_recording", "look_at", "look_into", "standing_in"]
