"""On a rank: each contract is posted on the board and compared with the others' before the backend sees the call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

from rankdrill.diagnosis.asynchronous import hazard_on
from rankdrill.diagnosis.calls.contracts import break_in, may_change
from rankdrill.diagnosis.calls.in_order import LookAhead, in_another_order, is_to_look_ahead
from rankdrill.diagnosis.finding import Finding
from rankdrill.diagnosis.layouts import gaps_on, shared_on
from rankdrill.diagnosis.messages.watch import MessageWatch
from rankdrill.errors import ContractBroken
from rankdrill.ledger import Board, BoardCall
from rankdrill.native import hot
from rankdrill.step import NOBODY, Contract, Step

if TYPE_CHECKING:  # it imports torch, which a controller does without
    from rankdrill.boundary.handles import Access, AnyHandle

__all__ = ["ContractWatch"]

SETTLE_S = 1.0  # for the other members to come, so that it is known who is in the majority
DOUBT_S = 0.05  # in which a rank may take back a call that the backend refused
COMPLETE_S = 0.2  # for the rest to come once it is: what they do is told too
LOOK_S = 0.002


class ContractWatch:
    """The watch of rank `rank`; see `rankdrill.boundary.Watch`.

    What it finds it gives to `tell`, None to take it back, then raises.
    """

    def __init__(self, board: Board, rank: int, tell: Callable[[Finding | None], None] = lambda finding: None) -> None:
        self._board = board
        self._rank = rank
        self._tell = tell
        self._messages = MessageWatch(board, rank, self._report_message)
        self._places: dict[int, dict[int, int]] = {}  # by group: which rank is which member
        self.look_ahead: LookAhead | None = None
        self._told: list[Finding] = []  # that this rank was told of: what it calls on its way out means nothing

    def enter(self, group: int, ranks: Sequence[int], me: int, step: Step) -> None:
        """Post what is to be done, and look at what the others posted; raises `ContractBroken` if that cannot be."""
        __tracebackhide__ = True
        contract = step.contract
        if self._told and not self._board.bent:
            raise ContractBroken(str(self._told[-1]), self._rank)
        # A body that numbers its ranks in its own way is left alone: nobody knows whose slots to look at.
        if contract is None or len(ranks) < 2 or ranks[me] != self._rank or self._board.bent:
            return
        if step.message is not None:
            self._messages.enter(group, ranks, step)
            return
        call = BoardCall(group, step.sequence)
        first = self._board.post(call, contract, step.site)
        for them in _partners(contract, me, len(ranks), self._place(group, ranks, first)):
            if self._board.differs(ranks[them], call, contract, me, them):
                finding = self._settle(call, ranks, step)
                if finding is not None and (finding := self._told_by_order(finding, call, ranks)) is not None:
                    self._note(finding)
                    self._board.break_(call)
                    self._told.append(finding)
                    raise ContractBroken(str(finding), self._rank)
                return

    def _told_by_order(self, finding: Finding, call: BoardCall, ranks: Sequence[int]) -> Finding | None:
        """`finding`, by what this rank brings later, if that tells; None in the copy that looks for that."""
        posts = self._board.posted(call, ranks)
        site = next((post.site for post in posts if post.rank == self._rank), None)
        if self.look_ahead is None or site is None or not is_to_look_ahead(finding, posts):
            return finding
        try:
            before = self.look_ahead.before(finding.group, site)
            later = self.look_ahead(finding.group, site)
            return None if later is None else in_another_order(finding, self._rank, posts, before, later)
        except Exception:  # there is no room for another process, say: what was found stays so
            return finding

    def entrance(self, group: int, ranks: Sequence[int], me: int, step: Step) -> Callable[[int], None]:
        """What does as `enter` for `step`, which has no message, as often as it is made, each time with a number."""

        def enter(number: int) -> None:
            __tracebackhide__ = True
            self.enter(group, ranks, me, step.like(sequence=number))

        contract = step.contract
        if contract is None or len(ranks) < 2 or ranks[me] != self._rank or _by_twos(contract) or contract.laid:
            return enter
        passes = self._board.posting(group, ranks, me, contract, step.site)
        if hot is not None:
            return cast("Callable[[int], None]", hot.Entrance(passes, self._told, enter))

        def enter_again(number: int) -> None:
            __tracebackhide__ = True
            if self._told or not passes(number):  # nearly never; then as if nobody had looked
                enter(number)

        return enter_again

    def _place(self, group: int, ranks: Sequence[int], rank: int | None) -> int | None:
        if rank is None:
            return None
        places = self._places.get(group)
        if places is None:
            places = self._places[group] = {member: place for place, member in enumerate(ranks)}
        return places.get(rank)

    def retract(self, group: int, step: Step) -> None:
        """Take back what was posted for a call that never took place."""
        if step.message is not None:
            self._messages.retract(group, step)
            return
        call = BoardCall(group, step.sequence)
        broken = self._board.broken
        if step.contract is not None and (broken is None or broken.call != call):
            self._board.retract(call)

    def _report_message(self, finding: Finding) -> None:
        __tracebackhide__ = True
        self._note(finding)
        self._board.break_(BoardCall(0, 0))  # no call of a group that all its members come to
        self._told.append(finding)
        raise ContractBroken(str(finding), self._rank)

    def bend(self) -> None:
        """Say nothing more in this run, on any rank."""
        self._board.bend()

    def touched(self, handle: AnyHandle, access: Access) -> None:
        """Raise `ContractBroken`: memory was accessed that the call of `handle` works on; see `Handles`.

        The run goes on for the others: they do the same, it may be, or wait for this rank before long.
        """
        __tracebackhide__ = True
        if not self._board.bent:
            self._report_own(hazard_on(self._rank, handle.step, access, lost=handle.lost))

    def misread(self, step: Step, shown: str, strides: tuple[int, ...]) -> None:
        """Raise `ContractBroken`: the backend would misread a tensor; see `Watch`. The run goes on for the others."""
        __tracebackhide__ = True
        if not self._board.bent:
            self._report_own(gaps_on(self._rank, step, shown, strides))

    def overwritten(self, step: Step, shown: str, parts: int) -> None:
        """Raise `ContractBroken`: a tensor is to hold the parts of several; see `Watch`. The run goes on likewise."""
        __tracebackhide__ = True
        if not self._board.bent:
            self._report_own(shared_on(self._rank, step, shown, parts))

    def _report_own(self, finding: Finding) -> None:
        __tracebackhide__ = True
        self._note(finding)
        raise ContractBroken(str(finding), self._rank)

    def _note(self, finding: Finding | None) -> None:
        self._tell(finding)
        self._board.note()

    def _settle(self, call: BoardCall, ranks: Sequence[int], step: Step) -> Finding | None:
        began = time.monotonic()
        noted = False
        while True:
            posts = self._board.posted(call, ranks)
            finding = break_in(posts, ranks, step.target, call.number)
            spent = time.monotonic() - began
            if self._board.bent:  # another rank's call was, and this one saw what came of it first
                finding = None
            if noted and finding is None:
                self._note(None)
            if self._board.bent or spent >= _patience(finding, len(posts) == len(ranks)):
                return finding
            if spent >= DOUBT_S and not noted:
                # Before the others have come: if they never will, the run is ended while this rank waits for them.
                self._note(finding)
                noted = True
            time.sleep(LOOK_S)


def _patience(finding: Finding | None, complete: bool) -> float:
    """How long to go on looking."""
    if finding is None or complete:
        return DOUBT_S
    return SETTLE_S if may_change(finding) else COMPLETE_S


def _by_twos(contract: Contract) -> bool:
    """Whether each two ranks exchange something that must fit between them alone."""
    return contract.each is not None or bool(contract.sends)


def _partners(contract: Contract, me: int, size: int, first: int | None) -> Iterable[int]:
    """Whom a rank looks at: who came first and its neighbours, or all with whom it exchanges something of its own."""
    by_twos = _by_twos(contract)
    if contract.laid and not by_twos:
        return [member for member in range(size) if member != me]
    if by_twos and contract.root == NOBODY:
        return range(size)  # what it sends itself, too
    if by_twos and contract.root == me:
        return [member for member in range(size) if member != me]
    found = {(me - 1) % size, (me + 1) % size, me if first is None else first}
    if by_twos:
        found.add(contract.root % size)
    found.discard(me)
    return found
