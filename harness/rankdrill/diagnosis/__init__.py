"""Why ranks hang, and where they do not do the same: read from ledgers and from the board of contracts."""

from rankdrill.diagnosis.agreement import odd_ones
from rankdrill.diagnosis.contracts import break_in
from rankdrill.diagnosis.crossed import crossed_groups
from rankdrill.diagnosis.finding import Finding, FindingKind, Side
from rankdrill.diagnosis.messages import unmatched_message, unreceived_message
from rankdrill.diagnosis.unequal import unequal_groups
from rankdrill.diagnosis.waits import Position, Progress, Wait, doomed, name_ranks, position, waits
from rankdrill.diagnosis.watch import ContractWatch

__all__ = [
    "ContractWatch",
    "Finding",
    "FindingKind",
    "Position",
    "Progress",
    "Side",
    "Wait",
    "break_in",
    "crossed_groups",
    "doomed",
    "name_ranks",
    "odd_ones",
    "position",
    "unequal_groups",
    "unmatched_message",
    "unreceived_message",
    "waits",
]
