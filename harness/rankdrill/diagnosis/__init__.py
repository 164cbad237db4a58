"""Why ranks hang, and where they do not do the same: read from ledgers and from the board of contracts."""

from rankdrill.diagnosis.asynchronous import Unwaited, each_for_itself, leak_on, unwaited
from rankdrill.diagnosis.calls.agreement import odd_ones
from rankdrill.diagnosis.confidence import Confidence
from rankdrill.diagnosis.finding import Finding, FindingKind, Side
from rankdrill.diagnosis.left_groups import LeftGroups, left_groups_on
from rankdrill.diagnosis.messages.unmatched import unreceived_message
from rankdrill.diagnosis.progress import Position, Progress
from rankdrill.diagnosis.root_cause import cause_of_hang, traced_back
from rankdrill.diagnosis.stores.lost import lost_update
from rankdrill.diagnosis.waits import Wait, doomed, name_ranks, waits
from rankdrill.diagnosis.watch import ContractWatch

__all__ = [
    "Confidence",
    "ContractWatch",
    "Finding",
    "FindingKind",
    "LeftGroups",
    "Position",
    "Progress",
    "Side",
    "Unwaited",
    "Wait",
    "cause_of_hang",
    "doomed",
    "each_for_itself",
    "leak_on",
    "left_groups_on",
    "lost_update",
    "name_ranks",
    "odd_ones",
    "traced_back",
    "unreceived_message",
    "unwaited",
    "waits",
]
