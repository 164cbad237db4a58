"""Ledgers: each rank's steps, written as they begin and end, readable by others and after SIGKILL."""

from rankdrill.ledger.format import CAPACITY, MAX_FAULTS, Record, State
from rankdrill.ledger.reader import LedgerReader, LedgerView
from rankdrill.ledger.writer import LedgerWriter

__all__ = [
    "CAPACITY",
    "MAX_FAULTS",
    "LedgerReader",
    "LedgerView",
    "LedgerWriter",
    "Record",
    "State",
]
