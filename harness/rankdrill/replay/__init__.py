"""Runs played again: from what ranks wrote down to a local world, or to a pytest file."""

from rankdrill.replay.cutting import cut_down, fitted
from rankdrill.replay.from_dumps import score_of_dumps
from rankdrill.replay.from_ledgers import score_of
from rankdrill.replay.from_outcome import score_of_outcome
from rankdrill.replay.from_recording import score_of_recording
from rankdrill.replay.from_server import score_of_served
from rankdrill.replay.needed import bearable
from rankdrill.replay.playing import Played, beyond, play, verdict_of
from rankdrill.replay.score import Score, score_from_json
from rankdrill.replay.writing import pytest_file

__all__ = [
    "Played",
    "Score",
    "bearable",
    "beyond",
    "cut_down",
    "fitted",
    "play",
    "pytest_file",
    "score_from_json",
    "score_of",
    "score_of_dumps",
    "score_of_outcome",
    "score_of_recording",
    "score_of_served",
    "verdict_of",
]
