"""Ledgers: each rank's steps, written as they begin and end, readable by others and after SIGKILL."""

from rankdrill.ledger.format import CAPACITY, MAX_FAULTS, Record, State
from rankdrill.ledger.members import GROUP_OP, MOST_RANKS, Members, spell_members
from rankdrill.ledger.reader import LedgerReader, LedgerView
from rankdrill.ledger.writer import LedgerWriter

__all__ = [
    "CAPACITY",
    "GROUP_OP",
    "MAX_FAULTS",
    "MOST_RANKS",
    "LedgerReader",
    "LedgerView",
    "LedgerWriter",
    "Members",
    "Record",
    "State",
    "spell_members",
]
