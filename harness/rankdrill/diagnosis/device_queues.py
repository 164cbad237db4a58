"""What one rank has handed to its device, group by group, as its ledger tells look by look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankdrill.ledger import ON_DEVICE, Record, State
from rankdrill.ledger.members import PARTLY_ON_DEVICE
from rankdrill.step import DEFAULT_GROUP, LEAVES_GROUP, NO_SEQUENCE

__all__ = ["MOST_AHEAD", "DeviceQueues"]

MOST_AHEAD = 256  # calls of a group that are kept, the newest
_HANGS_UP = "abort"


class DeviceQueues:
    """The newest calls of one rank on groups whose calls go on, on a device, after they have returned (NCCL's)."""

    def __init__(self) -> None:
        self._calls: dict[str, dict[int, Record]] = {}
        self._partly: set[str] = set()

    def make(self, label: str, mark: int) -> bool:
        """A group of that name is made, as `mark` says one of a device; whether there was one before."""
        known = self._calls.pop(label, None) is not None
        self._partly.discard(label)
        if mark in (ON_DEVICE, PARTLY_ON_DEVICE):
            self._calls[label] = {}
        if mark == PARTLY_ON_DEVICE:
            self._partly.add(label)
        return known

    def leave(self, record: Record) -> None:
        """The rank gives up a group, or with the default group all."""
        if record.step.op == LEAVES_GROUP and record.step.target == DEFAULT_GROUP:
            self._calls.clear()
        else:
            self._calls.pop(record.step.target, None)

    def take(self, record: Record) -> None:
        """A call is made, or known better: one that has failed is over."""
        calls = self._calls.get(record.step.target)
        if calls is None:
            return
        if record.step.op == _HANGS_UP:
            self.leave(record)
        elif record.state is State.RAISED:
            calls.pop(record.index, None)
        elif record.step.target in self._partly and not record.step.device:
            return  # its tensors lie in main memory
        elif record.step.sequence != NO_SEQUENCE or record.step.message is not None:
            calls[record.index] = record
            if len(calls) > MOST_AHEAD:
                del calls[min(calls)]

    @property
    def calls(self) -> Mapping[str, Sequence[Record]]:
        """By group, in their order."""
        return {label: tuple(calls.values()) for label, calls in self._calls.items()}
