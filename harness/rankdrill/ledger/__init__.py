"""What ranks leave in shared memory: ledgers, readable by others and after SIGKILL, and the board of contracts."""

from rankdrill.ledger.board import Board, BoardBreak, BoardCall, make_board
from rankdrill.ledger.format import CAPACITY, MAX_FAULTS, UNKNOWN_RANK, Record, State
from rankdrill.ledger.groups import Group
from rankdrill.ledger.mailbox import Half, Mailbox, MessageCall
from rankdrill.ledger.members import DEVICE_BACKENDS, MOST_RANKS, ON_DEVICE, members_of, spell_members
from rankdrill.ledger.posts import Post
from rankdrill.ledger.reader import LedgerReader, LedgerView, all_ended
from rankdrill.ledger.stencil import Stencil
from rankdrill.ledger.writer import LedgerWriter, milliseconds

__all__ = [
    "CAPACITY",
    "DEVICE_BACKENDS",
    "MAX_FAULTS",
    "MOST_RANKS",
    "ON_DEVICE",
    "UNKNOWN_RANK",
    "Board",
    "BoardBreak",
    "BoardCall",
    "Group",
    "Half",
    "LedgerReader",
    "LedgerView",
    "LedgerWriter",
    "Mailbox",
    "MessageCall",
    "Post",
    "Record",
    "State",
    "Stencil",
    "all_ended",
    "make_board",
    "members_of",
    "milliseconds",
    "spell_members",
]
