"""Why ranks hang: who waits for whom, read from ledgers."""

from rankdrill.diagnosis.waits import Position, Progress, Wait, doomed, name_ranks, position, waits

__all__ = ["Position", "Progress", "Wait", "doomed", "name_ranks", "position", "waits"]
