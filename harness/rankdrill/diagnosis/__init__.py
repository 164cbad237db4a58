"""Why ranks hang, and where they do not do the same: read from ledgers and from the board of contracts."""

from rankdrill.diagnosis.agreement import odd_ones
from rankdrill.diagnosis.asynchronous import EACH_FOR_ITSELF, Unwaited, each_for_itself, leak_on, lost_message, unwaited
from rankdrill.diagnosis.contracts import break_in
from rankdrill.diagnosis.crossed import crossed_groups
from rankdrill.diagnosis.finding import Finding, FindingKind, Side
from rankdrill.diagnosis.messages import unmatched_message, unreceived_message
from rankdrill.diagnosis.unequal import unequal_groups
from rankdrill.diagnosis.unmatched_calls import left_behind, retold
from rankdrill.diagnosis.waits import Position, Progress, Wait, doomed, name_ranks, position, waits
from rankdrill.diagnosis.watch import ContractWatch
from rankdrill.diagnosis.wrong_group import wrong_group

__all__ = [
    "EACH_FOR_ITSELF",
    "ContractWatch",
    "Finding",
    "FindingKind",
    "Position",
    "Progress",
    "Side",
    "Unwaited",
    "Wait",
    "break_in",
    "crossed_groups",
    "doomed",
    "each_for_itself",
    "leak_on",
    "left_behind",
    "lost_message",
    "name_ranks",
    "odd_ones",
    "position",
    "retold",
    "unequal_groups",
    "unmatched_message",
    "unreceived_message",
    "unwaited",
    "waits",
    "wrong_group",
]
