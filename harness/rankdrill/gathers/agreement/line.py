"""The line: the groups that the ranks of one generation talk over, and what goes over them.

Exchanges of slots go over a `LocalGroup` where all ranks are on one machine, else over gloo, and so do large payloads.

A gloo group costs about 12 ms, 7 file descriptors and two threads per rank (4 ranks, torch 2.13).
"""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from rankdrill.errors import UsageError, describe
from rankdrill.gathers.encoding.wire import bytes_of
from rankdrill.gathers.local.local_group import LocalGroup
from rankdrill.gathers.local.meeting import Meeting
from rankdrill.gathers.local.page import Page
from rankdrill.gathers.network import torch_seam
from rankdrill.gathers.network.beside import wait_beside
from rankdrill.gathers.network.lent import Lent
from rankdrill.gathers.network.overdue import within
from rankdrill.gathers.network.polled_store import PolledStore

__all__ = ["Line", "LineDownError", "Parties", "Wreck"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called

# Of so many tensors and lists of tensors that earlier exchanges took, gloo's threads may not have let go yet.
_OPERANDS_KEPT = 4

_POISON_TAG = 0x5244
_POISON_WAIT = datetime.timedelta(milliseconds=1)


class LineDownError(Exception):
    """An operation between the ranks failed or timed out."""


class Parties:
    """Between whom lines are: global ranks `members`, of which this process is the one at `rank`.

    Raises UsageError for a group whose members are no processes that share a store.
    """

    def __init__(self, group: Any, members: Sequence[int], rank: int) -> None:
        self.members, self.rank, self.size = tuple(members), rank, len(members)
        self.store = torch_seam.store_of(group)
        if self.store is None:
            raise UsageError(
                f"the ranks of this group ({dist.get_backend(group)}) share no store to meet over: gathers are between "
                "processes, as init_process_group('gloo') joins them"
            )
        self._polled = PolledStore(self.store)
        self._backend = torch_seam.cpu_backend(group)

    def make_group(self, name: str, timeout_s: float, make: Callable[[], Any] | None = None) -> Any:
        """A group of them over gloo, or what `make` returns; `name` is equal on all and never used again."""
        return torch_seam.make_group(
            name, self._polled, self.members, self.rank, self._backend, _delta(timeout_s), make
        )


class Wreck:
    """What is left of a broken line, to be let go of when nothing runs in it any more."""

    def __init__(self, operands: list[Any], group: Any, under_way: list[Any]) -> None:
        # Let go of in this order: tensors go after the group that took them.
        self._under_way = under_way
        self._group = group
        self._operands = operands

    @property
    def at_rest(self) -> bool:
        """Whether no operation runs in it: its destructor would wait for that one's timeout.

        gloo leaves an operation running now and then that was queued when its connections closed (3 of 60 interrupted
        transfers, torch 2.13).
        """
        return all(map(_is_over, self._under_way))


class Line:
    """What the ranks of one generation, whose name it bears, talk over."""

    def __init__(self, parties: Parties | None, name: str, scratch: torch.Tensor | None) -> None:
        self._parties = parties  # None of a rank that is alone
        self._name = name
        self._scratch = scratch  # for hanging up, which must not need memory
        self._local = False
        self.page: Page | None = None  # which ranks of one machine share
        self._pg: Any = None
        self._bulk: Any = None
        self._bulks = 0
        self._under_way: list[Any] = []
        # Tensors that a thread of gloo may be letting go of: they go after their group, here and in a wreck.
        self._operands: list[Any] = []
        self._lent = Lent()  # large payloads

    @property
    def connected(self) -> bool:
        """Whether it can be talked over."""
        return self._parties is None or self._pg is not None

    def connect(self, meeting: Meeting | None, timeout_s: float) -> None:
        """Make the group for exchanges: over gloo, unless the ranks meet on their machine. Raises LineDownError."""
        parties, self._local = self._parties, meeting is not None
        if parties is not None and meeting is not None:
            self._pg = self._make_group("", timeout_s, lambda: self._make_local(parties.rank, meeting, timeout_s))
        else:
            self._pg = self._make_group("", timeout_s)

    def _make_local(self, rank: int, meeting: Meeting, timeout_s: float) -> LocalGroup:
        group = LocalGroup(rank, meeting, timeout_s)
        self.page = group.page
        return group

    def open_bulk(self, timeout_s: float) -> None:
        """Make the group that large payloads go over, if there is none yet; all ranks do. Raises LineDownError."""
        if self._bulk is None and self._parties is not None:
            self._bulks += 1
            self._bulk = self._make_group(f"/bulk-{self._bulks}", timeout_s) if self._local else self._pg

    def close_bulk(self) -> None:
        """Let go of that group where it was for once, on one machine; all ranks do, after the transfer is confirmed."""
        if self._local:
            self._bulk = None
            self._lent.give_up()

    def _make_group(self, suffix: str, timeout_s: float, make: Callable[[], Any] | None = None) -> Any:
        parties = self._parties
        assert parties is not None
        name = self._name + suffix

        def made() -> Any:
            return parties.make_group(name, timeout_s, make)

        # gloo keeps to no bound while it connects: with a rank that died just then it takes 15 s, with one that is
        # stopped up to a minute (torch 2.13).
        return self.start(made if make else lambda: within(timeout_s, made), under_way=False)

    def exchange(self, mine: bytearray, timeout_s: float) -> memoryview:
        """Give `mine` to all ranks and return everybody's, one behind the other; all give equally many bytes."""
        if self._parties is None:
            return memoryview(mine)
        own = torch.frombuffer(mine, dtype=torch.uint8)
        options = torch_seam.AllgatherOptions()
        options.timeout = _delta(timeout_s)
        nbytes = len(mine) * self._parties.size
        if self._local:
            received = torch.empty(nbytes, dtype=torch.uint8, device="cpu")
            work = self.start(lambda: self._pg._allgather_base(received, own, options))
        else:
            received = torch.zeros(nbytes, dtype=torch.uint8, device="cpu")
            parts = list(torch.split(received, len(mine)))
            self._operands = [*self._operands[-_OPERANDS_KEPT:], own, parts]
            work = self.start(lambda: self._pg.allgather([parts], [own], options))
        self.finish([work], timeout_s)
        return bytes_of(received)

    def broadcast(self, tensor: torch.Tensor, root: int, timeout_s: float) -> Any:
        """Start sending `tensor` from `root` to all others; returns what `finish` waits for."""
        options = torch_seam.BroadcastOptions()
        options.rootRank = root
        options.timeout = _delta(timeout_s)
        lent = self._lent.lend(tensor)
        return self.start(lambda: self._bulk.broadcast([lent], options))

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Any:
        """Start sending `tensor` to one rank; returns what `finish` waits for."""
        lent = self._lent.lend(tensor)
        return self.start(lambda: self._bulk.send([lent], to, tag))

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Any:
        """Start receiving `tensor` from one rank; returns what `finish` waits for."""
        lent = self._lent.lend(tensor)
        return self.start(lambda: self._bulk.recv([lent], source, tag))

    def start(self, operation: Callable[[], Any], *, under_way: bool = True) -> Any:
        """Start an operation, of any group. Raises LineDownError, and MemoryError as it is."""
        try:
            work = operation()
            if under_way:
                self._under_way.append(work)
            return work
        except MemoryError:
            raise
        except Exception as error:
            cause = describe(error)
        # Out here, so that no traceback keeps the group and the buffers of the call alive.
        raise LineDownError(cause)

    def finish(self, works: Sequence[Any], timeout_s: float) -> None:
        """Wait until all of `works` are over. Raises LineDownError."""
        self._finish(works, lambda work: work.wait(_delta(timeout_s)))

    def finish_together(self, collectives: Sequence[Any], timeout_s: float) -> None:
        """As `finish`, of several that are under way together: one that fails ends the wait for the others.

        Not for messages: gloo closes all connections where a wait for one of them has been long enough.
        """
        until = time.monotonic() + timeout_s
        self._finish(collectives, lambda work: wait_beside(work, collectives, until))

    def _finish(self, works: Sequence[Any], wait: Callable[[Any], object]) -> None:
        cause = None
        for work in works:
            try:
                if work is not None:
                    wait(work)
            except Exception as error:
                cause = describe(error)
                break
        if cause is not None:
            raise LineDownError(cause)
        self._under_way.clear()
        self._lent.take_back()

    def wreck(self) -> list[Wreck]:
        """Break the groups, so that ranks that wait in them wait no longer; what is left of them.

        Neither `shutdown` nor `abort` of a gloo group closes its connections (torch 2.13); a receive that times out
        does, whoever else still holds the group.
        """
        operands = [*self._operands, *self._lent.give_up()]
        groups = {id(group): group for group in (self._pg, self._bulk) if group is not None}
        self._pg = self._bulk = self.page = None
        left = []
        for group in groups.values():
            self._poison(group)
            left.append(Wreck(operands, group, self._under_way))
        self._under_way, self._operands = [], []
        return left

    def _poison(self, group: Any) -> None:
        if torch_seam.is_made_by_us(group):
            group.abort()
            return
        assert self._parties is not None
        # From every rank: a receive from one whose connection is closed already fails and closes nothing.
        for other in range(self._parties.size):
            if other != self._parties.rank:
                with contextlib.suppress(Exception):
                    group.recv([self._scratch], other, _POISON_TAG).wait(_POISON_WAIT)


def _delta(seconds: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=seconds)


def _is_over(work: Any) -> bool:
    try:
        return work is None or bool(work.is_completed())
    except Exception:
        return True
