"""One call of a gather on one rank: encode, agree, transfer, decode, confirm; all of it together or not at all.

A `GatherCall` is entered by every path and left in one of two ways: all ranks return, or all ranks raise the same
error.

- What fails on this rank before `agree` is its contribution there; what fails between `agree` and `confirm` inside
  `attempt` is its contribution to `confirm`. Neither costs another round.
- Anything else that fails (no memory for a receive buffer, an interrupt) hangs up: the others' waiting ends within
  milliseconds, and the store tells them why (`post_mortem`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from rankdrill.errors import EncodeError, GatherError, PeerLost, UsageError, describe
from rankdrill.gathers.agreement.callsite import CallPlace, capture
from rankdrill.gathers.agreement.channel import SLOT_BYTES, Channel
from rankdrill.gathers.agreement.differences import different_arguments, different_calls
from rankdrill.gathers.agreement.line import LineDownError
from rankdrill.gathers.agreement.outcomes import Trouble, TroubleKind
from rankdrill.gathers.agreement.patience import patience
from rankdrill.gathers.agreement.settling import GENERATIONS_FOLLOWED, Settling, SupersededError
from rankdrill.gathers.agreement.slots import HEADER_BYTES, NONCE_BYTES, Reader, Slot, SlotError
from rankdrill.gathers.encoding.coding import Coding, coding_for
from rankdrill.gathers.encoding.wire import FRAME_NONCE_BYTES, Encoded
from rankdrill.gathers.host.liveness import Identity

__all__ = ["GatherCall", "Stored"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called

T = TypeVar("T")

# Of the timeout, at most this much is kept back for finding out who was lost.
GRACE_S = 2.0


@dataclass(frozen=True)
class Stored:
    """What a rank offers in a file or segment: frame size, digest, and the process that made it."""

    size: int
    digest: bytes
    identity: Identity


class GatherCall:
    """A context manager around one call on `channel`; `timeout`, in seconds, bounds each wait for the other ranks.

    `arguments` is a text that must be equal on all ranks, and so must `weights_only`, which says how payloads become
    objects: by `coding`, with `owned` into memory of torch's own. `nonce` names this rank's payload, frames and files,
    `gpu` the GPU it is to go over, if it is.
    """

    def __init__(
        self,
        channel: Channel,
        path: str,
        timeout: float | None,
        arguments: str = "",
        *,
        weights_only: bool = False,
        owned: bool = False,
    ) -> None:
        timeout_s = patience(timeout, channel.timeout_s)
        self.channel = channel
        self.path = path
        self.arguments = arguments
        self.coding: Coding = coding_for(weights_only, owned=owned)
        self.place: CallPlace = capture()
        self.nonce = secrets.token_bytes(NONCE_BYTES)
        self.trouble: Trouble | None = None
        self.gpu = b""
        self._agreed = False
        self._cause: Exception | None = None
        self._round = 1
        grace_s = min(GRACE_S, timeout_s / 4)
        self._settling = Settling(channel, path, self.place, grace_s)
        # What one phase may take, so that the error still comes within the timeout.
        self.wait_s = timeout_s - grace_s

    def __enter__(self) -> GatherCall:
        if not self.channel.busy.acquire(blocking=False):
            raise UsageError(f"{self.path}: another gather on this group is under way in this process")
        self._settling.number = self.channel.completed + 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(error, GatherError):
                # Where the ranks found out is no news: what happened, and where, the message says.
                error.__traceback__ = None
            elif error is not None:
                self._settling.give_up(error, self._agreed)
        finally:
            self.channel.completed = max(self.channel.completed, self._settling.number)
            self.channel.busy.release()

    @property
    def frame_nonce(self) -> bytes:
        """What this rank's frame begins and ends with."""
        return self.nonce[:FRAME_NONCE_BYTES]

    # ------------------------------------------------------------------------------ this rank's part

    def attempt(self, kind: TroubleKind, action: Callable[[], T]) -> T | None:
        """Do `action`; what it raises becomes this rank's contribution, and the result is None."""
        if self.trouble is not None:
            return None
        try:
            return action()
        except Exception as error:
            self.report(kind, describe(error))
            # Kept of nothing that has memory of the call.
            self._cause = error if kind is TroubleKind.ENCODE else None
            return None

    def report(self, kind: TroubleKind, cause: str, culprit: int | None = None) -> None:
        """Contribute a failure; the first one counts. `culprit` is the channel rank to blame instead of this one."""
        self.trouble = self.trouble or Trouble(kind, cause, culprit)

    # ------------------------------------------------------------------------------ with the others

    def agree(
        self, payload: Encoded | None = None, *, stored: Stored | None = None, by_tray: bool = False
    ) -> list[Slot]:
        """Tell all ranks what this one brings and return all slots, by channel rank.

        `payload` travels along if it is small, or, with `by_tray`, if the ranks share a page with trays that it fits
        in; then all must have copied it when they `confirm`. `stored` describes what is offered by a file or segment.
        Raises the same error on all ranks if any rank has trouble, called with other arguments or is in another call.
        """
        for _ in range(GENERATIONS_FOLLOWED):
            try:
                self._come()
                slots = self._exchange(self._offer(payload, stored, by_tray), self.channel.slot_bytes)
            except SupersededError:
                continue
            self.channel.adapt(max(0 if slot.in_tray else slot.size for slot in slots))
            if not self._all_well(slots):
                self._check_calls(slots)
                self._raise_troubles(slots)
                self._raise_if(different_arguments(slots))
            self._agreed = True
            return [self._with_tray(slot) if slot.in_tray else slot for slot in slots]
        raise PeerLost(self.path, (), f"{GENERATIONS_FOLLOWED} generations broken in a row")

    def require_one_host(self, remedy: str) -> None:
        """After `agree`, raise StorageError on all ranks, naming those that share no machine with the rest, and why."""
        self.require(TroubleKind.STORAGE, self.channel.apart(remedy))

    def require(self, kind: TroubleKind, causes: Mapping[int, str]) -> None:
        """After `agree`, raise the same error on all ranks if there are `causes`, by channel rank, which all know."""
        self._raise_if(([(rank, Trouble(kind, causes[rank])) for rank in sorted(causes)], ""))

    def announce(self, stored: Stored | None) -> list[Slot]:
        """After `agree`, tell all ranks where this one has laid down its payload, if it has; returns all slots.

        Raises the same error on all ranks if any rank has trouble.
        """
        self._round += 1
        slot = self._slot()
        if stored is not None and self.trouble is None:
            slot = slot._replace(size=stored.size, digest=stored.digest, identity=stored.identity)
        slots = self._exchange(slot, HEADER_BYTES)
        if not self._all_well(slots):
            self._check_calls(slots)
            self._raise_troubles(slots)
        return slots

    def confirm(self, all_read: bool = True) -> None:
        """Tell all ranks whether this one got through; raises the same error on all if one did not.

        `all_read` says that every rank has read every payload. Then a rank that cannot read what its own sender can
        is the one to blame.
        """
        self._round += 1
        slot = self._slot()
        mine = slot.tick()
        ticks = self._exchange_raw(mine)
        if slot.kind is TroubleKind.OK and bytes(ticks) == mine * self.channel.size:
            return
        # Not all is well, and all ranks know it: now they tell one another what it is.
        slots = self._exchange(slot, HEADER_BYTES)
        self._check_calls(slots)
        if all_read:
            slots = [
                slot._replace(culprit=None) if slot.culprit is not None and not slots[slot.culprit].trouble else slot
                for slot in slots
            ]
        self._raise_troubles(slots)

    def _offer(self, payload: Encoded | None, stored: Stored | None, by_tray: bool) -> Slot:
        slot = self._slot()
        if self.trouble is not None:
            return slot
        if stored is not None:
            return slot._replace(size=stored.size, digest=stored.digest, identity=stored.identity)
        if payload is not None:
            in_tray = by_tray and payload.nbytes > SLOT_BYTES - HEADER_BYTES and self._lay_in_tray(payload)
            fits = not in_tray and payload.nbytes <= self.channel.slot_bytes - HEADER_BYTES
            inline = payload.to_bytearray(self.frame_nonce) if fits else b""
            return slot._replace(size=payload.nbytes, digest=self.gpu, inline=memoryview(inline), in_tray=in_tray)
        return slot

    def _lay_in_tray(self, payload: Encoded) -> bool:
        """Whether `payload` lies in this rank's tray now. What lay there everybody has copied, and confirmed that."""
        page = self.channel.line.page
        # What is not trusted must not change while it is read.
        if page is None or not self.coding.trusting or payload.nbytes > page.tray_bytes:
            return False
        try:
            tray = page.own_tray(payload.nbytes)
        except OSError:
            return False  # no memory for it: another way will say so, or have some
        payload.write_into(tray, self.frame_nonce)
        return True

    def _slot(self) -> Slot:
        # The coding first: what is too long for a slot is cut at its end.
        text = ", ".join(filter(None, (self.coding.argument, self.arguments)))
        slot = Slot(self.path, self.channel.rank, self._settling.number, self._round, self.place, self.nonce, text=text)
        return slot if self.trouble is None else slot.with_trouble(self.trouble)

    def _come(self) -> None:
        """Connect, where the ranks are not connected yet."""
        down = None
        try:
            self._connect()
        except LineDownError as error:
            down = str(error)
        if down is not None:
            self._settling.line_down(down)

    def _exchange(self, slot: Slot, nbytes: int) -> list[Slot]:
        mine = slot.pack(nbytes)
        reader, blocks = Reader(mine), self._exchange_raw(mine)
        return [
            self._read(reader, rank, blocks[rank * nbytes : (rank + 1) * nbytes]) for rank in range(self.channel.size)
        ]

    def _exchange_raw(self, mine: bytearray) -> memoryview:
        down = None
        try:
            blocks = self.channel.line.exchange(mine, self.wait_s)
        except LineDownError as error:
            down = str(error)
        if down is not None:
            self._settling.line_down(down)
        self._settling.met = True
        return blocks

    def _connect(self) -> None:
        if self.channel.line.connected:
            return
        # Before the others can count on this rank: what fails here fails before they wait where nobody can tell them.
        self.channel.prepare()
        ended, down = None, None
        try:
            ended = self.channel.assemble(self.wait_s)
        except Exception as error:
            down = describe(error)
        if down is not None:
            raise LineDownError(down)
        if ended is not None:
            self._settling.raise_settled(ended)
        self.channel.connect(self.wait_s)

    def _read(self, reader: Reader, rank: int, block: memoryview) -> Slot:
        try:
            slot = reader.read(block)
            if slot.rank != rank:
                raise SlotError(f"the slot of rank {self.channel.labels[slot.rank]}")
        except SlotError as error:
            self._settling.lost("", [(rank, Trouble(TroubleKind.LOST, f"sent {error}"))])
        return slot

    def _with_tray(self, slot: Slot) -> Slot:
        """`slot` with what lies in its rank's tray."""
        page = self.channel.line.page
        if page is None or not self.coding.trusting or slot.size > page.tray_bytes:
            self._settling.lost(
                "", [(slot.rank, Trouble(TroubleKind.LOST, "speaks of a tray where there is none for it"))]
            )
        return slot._replace(inline=page.tray(slot.rank, slot.size))

    # ------------------------------------------------------------------------------ raising together

    def _all_well(self, slots: Sequence[Slot]) -> bool:
        """Whether all ranks are in one call, with the same arguments and without trouble: their slots are alike."""
        place = slots[0].place
        return self.trouble is None and all(slot.place is place for slot in slots)

    def _check_calls(self, slots: Sequence[Slot]) -> None:
        troubles, usual = different_calls(slots, self.place)
        if troubles:
            self._settling.number = max(slot.number for slot in slots)
            # Not all ranks need see it: of three places one may lead to another without the third knowing.
            self._settling.lost(usual, troubles)

    def _raise_troubles(self, slots: Sequence[Slot]) -> None:
        self._raise_if(([(slot.rank, slot.trouble) for slot in slots if slot.trouble is not None], ""))

    def _raise_if(self, finding: tuple[Sequence[tuple[int, Trouble]], str]) -> None:
        troubles, hint = finding
        if troubles:
            error = self._settling.error(troubles, hint)
            if isinstance(error, EncodeError) and self._cause is not None:
                raise error from self._cause
            raise error
