"""The channel: what the ranks of one of the caller's groups talk over, with a timeout of its own on every operation.

After a timeout gloo closes all its connections: whoever else uses that group fails too. So the gathers never use the
caller's group, but groups of their own over the same ranks, made when they are first needed and thrown away when they
break; the next call makes the next *generation*. Exchanges of slots go over a `LocalGroup` where all ranks are on one
machine, else over gloo, and so do large payloads. The groups go when the caller's group goes.

A gloo group costs about 12 ms, 7 file descriptors and two threads per rank (4 ranks, torch 2.13).
"""

from __future__ import annotations

import contextlib
import datetime
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from rankdrill.errors import UsageError, describe
from rankdrill.gathers.agreement.post_mortem import Board, Verdict
from rankdrill.gathers.agreement.slots import HEADER_BYTES
from rankdrill.gathers.encoding.wire import bytes_of
from rankdrill.gathers.host.liveness import Identity
from rankdrill.gathers.local.endpoint import Address, Endpoint, is_visible, open_endpoint
from rankdrill.gathers.local.local_group import LocalGroup, Meeting
from rankdrill.gathers.network import torch_seam
from rankdrill.gathers.network.lent import Lent
from rankdrill.gathers.network.overdue import within
from rankdrill.gathers.network.polled_store import PolledStore

__all__ = [
    "DEFAULT_TIMEOUT_S",
    "SLOT_BYTES",
    "Channel",
    "LineDownError",
    "channel_between",
    "channel_of",
    "is_member",
]

# How long a rank waits for the others, in seconds, unless told otherwise. torch's default is half an hour.
DEFAULT_TIMEOUT_S = 60.0

# A slot and the small payload that travels with it: at first, and at most where payloads turn out to be so large.
SLOT_BYTES = HEADER_BYTES + 1024
LARGEST_SLOT_BYTES = HEADER_BYTES + 16 * 1024

# The environment's word on what ranks of one machine share: memory (`local`) or, if one rank says so, nothing (`gloo`).
# With `split` they go as if the lower and the upper half of them were on two machines.
LINE_VARIABLE = "RANKDRILL_LINE"
_LOCAL, _GLOO, _SPLIT = _LINES = "local", "gloo", "split"

# Of so many tensors and lists of tensors that earlier exchanges took, gloo's threads may not have let go yet.
_OPERANDS_KEPT = 4

_POISON_TAG = 0x5244
_POISON_WAIT = datetime.timedelta(milliseconds=1)

# By group object. Per process, because a connection is; it is only ever found through the group it belongs to.
_channels: weakref.WeakKeyDictionary[Any, dict[tuple[int, ...], Channel]] = weakref.WeakKeyDictionary()


class LineDownError(Exception):
    """An operation between the ranks failed or timed out."""


class Channel:
    """This rank's end of the line between the ranks `members` (global ranks, by rank in the channel).

    `labels` are the ranks of the caller's group that errors name. `completed` counts the calls that are over,
    `slot_bytes` is the size of the next exchange; both are equal on all ranks that are in step. `hosts` are the ranks
    that share a machine, `sharing` those that also share memory: nobody does where a rank wishes for gloo.
    """

    def __init__(self, group: Any, members: Sequence[int], labels: Sequence[int]) -> None:
        self.members = tuple(members)
        self.labels = tuple(labels)
        self.size = len(self.members)
        self.rank = self.members.index(dist.get_rank()) if group is not None else 0
        self.completed = 0
        self.generation = 0
        self.slot_bytes = SLOT_BYTES
        self.hosts: tuple[tuple[int, ...], ...] = (tuple(range(self.size)),)
        self.sharing: tuple[tuple[int, ...], ...] = self.hosts
        self.busy = threading.Lock()
        self._known: dict[int, Identity] = {}
        self._endpoint: Endpoint | None = None
        self._local = False
        self._wish = _LOCAL
        self._pg: Any = None
        self._bulk: Any = None
        self._bulks = 0
        self._scratch: torch.Tensor | None = None
        self._under_way: list[Any] = []
        # Tensors that a thread of gloo may be letting go of: they go after their group, here and in a wreck.
        self._operands: list[Any] = []
        self._lent = Lent()  # large payloads
        self._wrecks: list[tuple[list[Any], Any, list[Any]]] = []
        self._name = ""
        self._device = torch_seam.bound_device(group)
        if self.size > 1:
            self._store = torch_seam.store_of(group)
            self._polled = PolledStore(self._store)
            self._backend = torch_seam.cpu_backend(group)
            ranks = "-".join(map(str, self.labels))
            self._name = f"rankdrill-{group.group_name}-{ranks}"

    @property
    def board(self) -> Board:
        """Where the ranks of this generation post when something breaks."""
        return Board(self._store, f"{self._name}/{self.generation}/", self.rank, self.size, self._known)

    @property
    def connected(self) -> bool:
        """Whether this generation can be talked over."""
        return self.size == 1 or self._pg is not None

    @property
    def one_host(self) -> bool:
        """Whether all ranks are on one machine and talk over it."""
        return self._local

    def machine_of(self, rank: int) -> tuple[int, ...]:
        """The ranks that `rank` shares memory with, itself among them."""
        return next(machine for machine in self.sharing if rank in machine)

    def at_device(self) -> contextlib.AbstractContextManager[Any]:
        """Makes the GPU that the group is bound to, if it is, the current one: no context comes to be on another."""
        return torch.cuda.device(self._device) if self._device is not None else contextlib.nullcontext()

    def prepare(self) -> None:
        """Take what connecting and hanging up will need, so that what is wrong with it is known before.

        Raises MemoryError, and ValueError for a line that does not exist.
        """
        self._wish = _wished_line()
        if self._scratch is None:
            self._scratch = torch.zeros(1, dtype=torch.uint8)

    def assemble(self, timeout_s: float) -> Verdict | None:
        """Wait for the other members and find out who shares a machine; the verdict, if this generation has ended.

        Raises AbsentError.
        """
        board = self.board
        self._endpoint = endpoint = open_endpoint()
        ended = board.assemble(timeout_s, str(endpoint.address) if endpoint else "")
        if ended is None:
            ended = board.compare([self.rank, *self._neighbours(board)], self._wish, timeout_s)
        if ended is None:
            self.hosts = board.hosts()
            self.sharing = _sharing(self.hosts, board.wishes())
            self._local = len(self.sharing) == 1
        return ended

    def _neighbours(self, board: Board) -> list[int]:
        """The other ranks that this one sees on its machine."""
        return [
            rank
            for rank, text in enumerate(board.addresses())
            if text and rank != self.rank and is_visible(Address.parse(text), self._known[rank].pid)
        ]

    def connect(self, timeout_s: float) -> None:
        """Make this generation's group for exchanges, after `assemble`. Raises LineDownError."""
        self._clear_wrecks()
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None and not self._local:
            endpoint.close()
        if endpoint is not None and self._local:
            paths = [Address.parse(text).path for text in self.board.addresses()]
            meeting = Meeting(endpoint, paths, [self._known[rank].pid for rank in range(self.size)])
            self._pg = self._make_group("", timeout_s, lambda: LocalGroup(self.rank, meeting, timeout_s))
        else:
            self._pg = self._make_group("", timeout_s)
        self.slot_bytes = SLOT_BYTES
        self._bulks = 0  # the last generation may have ended when only some ranks had counted
        self._under_way.clear()

    def open_bulk(self, timeout_s: float) -> None:
        """Make the group that large payloads go over, if there is none yet; all ranks do. Raises LineDownError."""
        if self._bulk is None and self.size > 1:
            self._bulks += 1
            self._bulk = self._make_group(f"/bulk-{self._bulks}", timeout_s) if self._local else self._pg

    def close_bulk(self) -> None:
        """Let go of that group where it was for once, on one machine; all ranks do, after the transfer is confirmed."""
        if self._local:
            self._bulk = None
            self._lent.give_up()

    def _make_group(self, suffix: str, timeout_s: float, make: Callable[[], Any] | None = None) -> Any:
        name = f"{self._name}/{self.generation}{suffix}"
        store, backend, delta = self._polled, self._backend, _delta(timeout_s)
        members, rank = self.members, self.rank

        def made() -> Any:
            return torch_seam.make_group(name, store, members, rank, backend, delta, make)

        # gloo keeps to no bound while it connects: with a rank that died just then it takes 15 s, with one that is
        # stopped up to a minute (torch 2.13).
        return self.start(made if make else lambda: within(timeout_s, made), under_way=False)

    def exchange(self, mine: bytearray, timeout_s: float) -> list[memoryview]:
        """Give `mine` to all ranks and return everybody's, by rank; all ranks give equally many bytes."""
        nbytes = len(mine)
        if self.size == 1:
            return [memoryview(mine)]
        received = torch.zeros(nbytes * self.size, dtype=torch.uint8)
        own, parts = torch.frombuffer(mine, dtype=torch.uint8), list(torch.split(received, nbytes))
        options = torch_seam.AllgatherOptions()
        options.timeout = _delta(timeout_s)
        self._operands = [*self._operands[-_OPERANDS_KEPT:], own, parts]
        work = self.start(lambda: self._pg.allgather([parts], [own], options))
        self.finish([work], timeout_s)
        view = bytes_of(received)
        return [view[start : start + nbytes] for start in range(0, len(view), nbytes)]

    def adapt(self, largest_payload: int) -> None:
        """Make room in the next exchange for payloads as large as the largest of this one, if that is little."""
        wanted = HEADER_BYTES + _rounded_up(largest_payload)
        self.slot_bytes = max(wanted, SLOT_BYTES) if wanted <= LARGEST_SLOT_BYTES else SLOT_BYTES

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
        cause = None
        for work in works:
            try:
                if work is not None:
                    work.wait(_delta(timeout_s))
            except Exception as error:
                cause = describe(error)
                break
        if cause is not None:
            raise LineDownError(cause)
        self._under_way.clear()
        self._lent.take_back()

    def hang_up(self) -> None:
        """Close the connections, so that ranks that wait in this generation wait no longer.

        Neither `shutdown` nor `abort` of a gloo group closes its connections (torch 2.13); a receive that times out
        does, whoever else still holds the group.
        """
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.close()
        self._wreck()
        self._clear_wrecks()

    def _wreck(self) -> None:
        """Break the groups. A function of its own, whose names for them are gone when they are let go of."""
        operands = [*self._operands, *self._lent.give_up()]
        groups = {id(group): group for group in (self._pg, self._bulk) if group is not None}
        self._pg = self._bulk = None
        for group in groups.values():
            self._poison(group)
            self._wrecks.append((operands, group, self._under_way))  # a tuple lets go of its last item first
        self._under_way, self._operands = [], []

    def _poison(self, group: Any) -> None:
        if torch_seam.is_made_by_us(group):
            group.abort()
            return
        # From every rank: a receive from one whose connection is closed already fails and closes nothing.
        for other in range(self.size):
            if other != self.rank:
                with contextlib.suppress(Exception):
                    group.recv([self._scratch], other, _POISON_TAG).wait(_POISON_WAIT)

    def next_generation(self) -> None:
        """Leave this generation, which is over for all ranks."""
        self.hang_up()
        self.generation += 1

    def _clear_wrecks(self) -> None:
        """Let go of broken groups, but not while an operation runs: their destructor would wait for its timeout.

        gloo leaves an operation running now and then that was queued when its connections closed (3 of 60 interrupted
        transfers, torch 2.13).
        """
        self._wrecks = [wreck for wreck in self._wrecks if not all(map(_is_over, wreck[-1]))]


def channel_of(group: Any = None) -> Channel:
    """The channel between all ranks of `group` (by default of the default group).

    Without an initialised default group: a channel of one rank. Raises UsageError where this rank is not a member.
    """
    if not dist.is_initialized():
        return Channel(None, (0,), (0,))
    group = dist.group.WORLD if group is None else group
    if not is_member(group):
        raise UsageError("this rank is not a member of the group; call the gather on its members only")
    return _kept(group, tuple(dist.get_process_group_ranks(group)))


def channel_between(ranks: Sequence[int], group: Any = None) -> Channel | None:
    """The channel between `ranks` (global) of `group`; None where this rank is not one of them.

    Raises UsageError unless `ranks` are distinct members of the group, as far as a rank outside it can know.
    """
    if dist.is_initialized() and not is_member(group):
        return None  # torch tells such a rank the members of another group: of the newest that it is not in
    if dist.is_initialized() and group is None:
        group = dist.group.WORLD  # torch 2.6 knows no ranks of None
    everyone = (0,) if not dist.is_initialized() else tuple(dist.get_process_group_ranks(group))
    wanted = set(ranks)
    if not wanted or len(wanted) != len(ranks) or not wanted <= set(everyone):
        raise UsageError(f"ranks={list(ranks)}: give distinct global ranks of the group, which has {list(everyone)}")
    if not dist.is_initialized():
        return channel_of()
    if dist.get_rank() not in wanted:
        return None
    return _kept(group, tuple(rank for rank in everyone if rank in wanted))


def _kept(group: Any, members: tuple[int, ...]) -> Channel:
    channels = _channels.setdefault(group, {})
    if members not in channels:
        everyone = dist.get_process_group_ranks(group)
        # Of two threads that come here at once, both get the channel of the first.
        channels.setdefault(members, Channel(group, members, [everyone.index(rank) for rank in members]))
    return channels[members]


def is_member(group: Any) -> bool:
    """Whether this rank belongs to `group`."""
    return group is None or (group is not dist.GroupMember.NON_GROUP_MEMBER and bool(dist.get_rank(group) >= 0))


def _wished_line() -> str:
    wish = os.environ.get(LINE_VARIABLE) or _LOCAL
    if wish not in _LINES:
        raise ValueError(f"{LINE_VARIABLE}={wish}: give {', '.join(_LINES)}, or unset it")
    return wish


def _sharing(hosts: Sequence[tuple[int, ...]], wishes: set[str]) -> tuple[tuple[int, ...], ...]:
    """The ranks that share memory, as all wish."""
    if _GLOO in wishes:
        return tuple((rank,) for host in hosts for rank in host)
    if _SPLIT in wishes:
        halves = [half for host in hosts for half in (host[: len(host) // 2], host[len(host) // 2 :])]
        return tuple(half for half in halves if half)
    return tuple(hosts)


def _rounded_up(nbytes: int) -> int:
    """To a power of two, so that payloads of about one size are all alike."""
    return 1 << max(nbytes - 1, 0).bit_length()


def _delta(seconds: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=seconds)


def _is_over(work: Any) -> bool:
    try:
        return work is None or bool(work.is_completed())
    except Exception:
        return True
