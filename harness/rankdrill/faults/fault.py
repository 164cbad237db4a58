"""One fault: a strike at a place, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass

from rankdrill.faults.check import check_fault
from rankdrill.faults.where import What, Where

__all__ = ["Fault"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. Raises `PlanError` for one that cannot be: an unknown strike, or where it has no meaning."""

    where: Where
    what: What

    def __post_init__(self) -> None:
        args = check_fault(self.where, self.what)
        if args != self.what.args:
            object.__setattr__(self, "what", What(self.what.name, args))

    def __str__(self) -> str:
        rank = "*" if self.where.rank is None else self.where.rank
        return f"rank {rank}: {self.what} {self.where.when} {self.where.step} {self.where.count}".rstrip()
