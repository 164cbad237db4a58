"""On a rank: each half of a message is posted, and compared with the other half if that is there already."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rankdrill.diagnosis.finding import Finding, FindingKind, side_of
from rankdrill.diagnosis.messages.contracts import break_in_message
from rankdrill.diagnosis.waits import name_ranks
from rankdrill.ledger import Board, Half, MessageCall
from rankdrill.step import ANYBODY, NO_SEQUENCE, OUTSIDE, SEND, Message, Step

__all__ = ["MessageWatch"]

SETTLE_S = 0.5  # for other ranks' messages to come, so that it is known who is the odd one
BEGIN_S = 2.0  # likewise for those of which nothing has come yet: a busy machine starts one rank long after another
DOUBT_S = 0.15  # in which a rank may take back a call that the backend refused; 0.05 was too little at load 20
SIDED_S = 0.25  # for others to come to the other end, too
LOOK_S = 0.002


class MessageWatch:
    """The watch over the messages of rank `rank`; what it finds it gives to `report`, which raises."""

    def __init__(self, board: Board, rank: int, report: Callable[[Finding], None]) -> None:
        self._board = board
        self._rank = rank
        self._report = report
        self._told_of: MessageCall | None = None

    def enter(self, group: int, ranks: Sequence[int], step: Step) -> None:
        """Post this rank's half of a message, and look at the other's."""
        __tracebackhide__ = True
        message = step.message
        assert message is not None
        assert step.contract is not None
        if message.peer == OUTSIDE:
            self._report(_outside(step, self._rank, ranks))
        call = self._call(group, message, step.op)
        if call is None:
            return
        half = _half(step.op)
        self._board.mailbox.post(call, half, step.contract, step.site)
        if self._board.mailbox.differs(call, half.other, step.contract):
            finding = self._settle(call, step.target, set(ranks) - {call.source, call.target}, message.header)
            if finding is not None:
                self._told_of = call
                self._report(finding)

    def retract(self, group: int, step: Step) -> None:
        """Take back what was posted of a message that was refused."""
        call = self._call(group, step.message, step.op)
        if call is not None and call != self._told_of:  # what this rank has found itself stays, for others to see
            self._board.mailbox.retract(call, _half(step.op))

    def _call(self, group: int, message: Message | None, op: str) -> MessageCall | None:
        """The message by the name that both its ends give it; None where it has none yet."""
        if message is None or message.peer in (ANYBODY, OUTSIDE) or message.number == NO_SEQUENCE:
            return None
        ends = (self._rank, message.peer) if op == SEND else (message.peer, self._rank)
        return MessageCall(group, *ends, message.tag, message.number)

    def _settle(self, call: MessageCall, group: str, others: set[int], header: Sequence[int]) -> Finding | None:
        began = time.monotonic()
        mailbox = self._board.mailbox
        while True:
            spent = time.monotonic() - began  # before the look: the first one may have to read a long source
            here = all(map(self._board.knows, others))  # likewise: what one has posted since may tell
            sent, received = mailbox.posted(call, Half.SEND), mailbox.posted(call, Half.RECV)
            finding = None
            if sent is not None and received is not None and not self._board.bent:
                finding = break_in_message(call, sent, received, mailbox.everything(call.group), group, header)
            if spent >= self._patience(call, finding, others, here=here):
                return finding
            time.sleep(LOOK_S)

    def _patience(self, call: MessageCall, finding: Finding | None, others: set[int], *, here: bool) -> float:
        """For how long to go on looking; `others` are those members that have no part in `call`, `here` if each has
        posted something.
        """
        if finding is None or not others:
            return DOUBT_S
        if not finding.culprits:
            return SETTLE_S if here else BEGIN_S
        # Others that send speak for the one that sends as they do, until they come to receive as it does not.
        odd = Half.SEND if finding.culprits == (call.source,) else Half.RECV
        seen = self._board.mailbox.everything(call.group)
        spoken = any(half is odd and other.tag == call.tag and post.rank in others for other, half, post in seen)
        return DOUBT_S if spoken else SIDED_S


def _half(op: str) -> Half:
    return Half.SEND if op == SEND else Half.RECV


def _outside(step: Step, rank: int, ranks: Sequence[int]) -> Finding:
    verb = "sends to" if step.op == SEND else "receives from"
    did = f"{verb} a rank that {step.target!r} does not have ({step.fingerprint}): its members are {name_ranks(ranks)}"
    side = side_of([rank], did, [step.site])
    return Finding(FindingKind.UNMATCHED, f"{step.op} on {step.target!r}", "peer", (side,), (rank,))
