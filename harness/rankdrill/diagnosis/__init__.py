"""Why ranks hang: who waits for whom, read from ledgers."""

from rankdrill.diagnosis.waits import Position, Wait, doomed, position, waits

__all__ = ["Position", "Wait", "doomed", "position", "waits"]
