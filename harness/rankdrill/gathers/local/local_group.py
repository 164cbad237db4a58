"""A process group of ranks on one machine: small exchanges over Unix sockets, a connection per pair of ranks.

For the few kilobytes of an agreement gloo's TCP pays mostly for waking its threads; here the ranks' own threads send
and receive. A rank that dies is known at once, by its name, also where a child of it still holds its sockets.

Only `allgather` exists, of equally many bytes from every rank. A member that hangs up ends the others' waiting.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from rankdrill.gathers.encoding.wire import bytes_of
from rankdrill.gathers.local.endpoint import Endpoint

__all__ = ["LineError", "LocalGroup", "Meeting"]

# What precedes each message: the number of the exchange and the number of bytes that follow.
_HEAD = struct.Struct("<QQ")
# What a rank says first on a connection it has opened: its rank.
_HELLO = struct.Struct("<I")
_UNSET = datetime.timedelta(0)


class LineError(RuntimeError):
    """The ranks cannot talk any more: one died, hung up, did not come, or sent something else."""


class Meeting:
    """What a member needs to meet the others: its own endpoint, and the addresses of all, by rank."""

    def __init__(self, endpoint: Endpoint, addresses: Sequence[str], pids: Sequence[int]) -> None:
        self.endpoint = endpoint
        self.addresses = addresses
        self.pids = pids

    def connect(self, rank: int, timeout_s: float) -> dict[int, socket.socket]:
        """A connection to each other member, by rank: this one calls on the lower ranks and lets the higher ones in.

        Raises LineError.
        """
        deadline = time.monotonic() + timeout_s
        links: dict[int, socket.socket] = {}
        try:
            for other in range(rank):
                links[other] = _call_on(self.addresses[other], rank)
            while len(links) < len(self.addresses) - 1:
                hello, link = self.endpoint.let_in(self.pids, _HELLO.size, deadline)
                links[_HELLO.unpack(hello)[0]] = link
        except OSError as error:
            for link in links.values():
                link.close()
            raise LineError(f"no connection to all ranks on this machine: {error}") from error
        finally:
            self.endpoint.close()
        for link in links.values():
            link.setblocking(False)
        return links


class LocalGroup(dist.ProcessGroup):
    """The group itself; torch's tables, the ledger and faults treat it as any other."""

    def __init__(self, rank: int, meeting: Meeting, timeout_s: float) -> None:
        super().__init__(rank, len(meeting.addresses))  # type: ignore[call-arg]
        self.links = meeting.connect(rank, timeout_s)
        self.watches = {other: watch for other in self.links if (watch := _watch(meeting.pids[other])) is not None}
        self.me = rank
        self.count = 0
        self.names = ["", ""]

    def getBackendName(self) -> str:  # noqa: N802 (torch's name)
        """What torch calls it."""
        return "rankdrill_local"

    # torch keeps a group's name and description in its backends, of which this one has none.
    def setGroupName(self, name: str) -> None:  # noqa: N802
        """Take the name that torch gives."""
        self.names[0] = name

    def getGroupName(self) -> str:  # noqa: N802
        """The name."""
        return self.names[0]

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        """Take the description that torch gives."""
        self.names[1] = description

    def getGroupDesc(self) -> str:  # noqa: N802
        """The description."""
        return self.names[1]

    def allgather(self, outputs: Any, tensors: Any, opts: Any = None) -> dist.Work:
        """Every rank's tensor on every rank; all have equally many bytes. Returns a handle to wait for."""
        self.count += 1
        targets = [bytes_of(tensor) for tensor in outputs[0]]
        mine = bytes_of(tensors[0])
        targets[self.me][:] = mine
        return Exchange(self, self.count, mine, targets, getattr(opts, "timeout", _UNSET))

    def abort(self) -> None:
        """Hang up: whoever waits for this rank waits no longer."""
        for link in self.links.values():
            link.close()
        for watch in self.watches.values():
            os.close(watch)
        self.links, self.watches = {}, {}

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.abort()


class Exchange(dist.Work):
    """One allgather under way. It sends at once, and receives in `wait`."""

    def __init__(
        self,
        group: LocalGroup,
        number: int,
        mine: memoryview,
        targets: Sequence[memoryview],
        timeout: datetime.timedelta,
    ) -> None:
        super().__init__()
        self._group = group
        self._number = number
        self._timeout = timeout
        message = memoryview(_HEAD.pack(number, len(mine)) + bytes(mine))
        self._unsent = dict.fromkeys(group.links, message)
        self._incoming = {other: _Incoming(targets[other]) for other in group.links}
        self._failure: str | None = None if len(group.links) == len(targets) - 1 else "this rank has hung up"
        for other in list(self._unsent):
            self._send(other)

    def wait(self, timeout: datetime.timedelta = _UNSET) -> bool:
        """Wait until every rank's bytes are here. Raises LineError, naming ranks."""
        bound = (timeout or self._timeout).total_seconds()
        deadline = time.monotonic() + bound if bound > 0 else None
        poll = select.poll()
        for other, link in self._group.links.items():
            poll.register(link, self._events(other))
        for watch in self._group.watches.values():
            poll.register(watch, select.POLLIN)
        whose = {link.fileno(): other for other, link in self._group.links.items()}
        dies = {watch: other for other, watch in self._group.watches.items()}
        while self._failure is None and (self._incoming or self._unsent):
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            events = poll.poll(None if left is None else left * 1000)
            if not events and left == 0.0:
                raise LineError(f"ranks {sorted(self._incoming)} of the channel did not come")
            for fd, _ in events:
                other = whose[fd] if fd in whose else dies[fd]
                self._serve(other)
                if other in self._incoming and fd in dies:
                    self._fail(f"the process of rank {other} of the channel ended")
                if not self._pending(other) or fd in dies:
                    poll.unregister(fd)
                elif fd in whose:
                    poll.modify(fd, self._events(other))
        if self._failure is not None:
            raise LineError(self._failure)
        return True

    def is_completed(self) -> bool:
        """Whether it is over, well or not; receives what is there."""
        for other in list(self._incoming):
            self._serve(other)
        return self._failure is not None or not (self._incoming or self._unsent)

    def _pending(self, other: int) -> bool:
        return other in self._incoming or other in self._unsent

    def _events(self, other: int) -> int:
        return (select.POLLIN if other in self._incoming else 0) | (select.POLLOUT if other in self._unsent else 0)

    def _serve(self, other: int) -> None:
        if other in self._unsent:
            self._send(other)
        if other in self._incoming:
            self._receive(other)

    def _send(self, other: int) -> None:
        try:
            sent = self._group.links[other].send(self._unsent[other])
        except BlockingIOError:
            return
        except OSError:
            # What it sent before may still be there, but it has given this exchange up: it cannot have our part.
            self._fail(f"rank {other} of the channel hung up")
            return
        self._unsent[other] = self._unsent[other][sent:]
        if not self._unsent[other]:
            del self._unsent[other]

    def _receive(self, other: int) -> None:
        incoming = self._incoming[other]
        try:
            while not incoming.whole:
                got = self._group.links[other].recvmsg_into(incoming.buffers())[0]
                if not got:
                    raise ConnectionResetError("end of stream")
                incoming.take(got)
        except BlockingIOError:
            return
        except OSError:
            self._fail(f"rank {other} of the channel hung up")
            return
        number, nbytes = _HEAD.unpack(incoming.head)
        if (number, nbytes) != (self._number, len(incoming.body)):
            self._fail(f"rank {other} of the channel sent {nbytes} bytes in exchange {number}, "
                       f"not {len(incoming.body)} in {self._number}")  # fmt: skip
        del self._incoming[other]

    def _fail(self, cause: str) -> None:
        self._failure = self._failure or cause


class _Incoming:
    """One message as it arrives: its head, then its body straight into the target."""

    def __init__(self, target: memoryview) -> None:
        self.head = bytearray(_HEAD.size)
        self.body = target
        self._got = 0

    @property
    def whole(self) -> bool:
        """Whether all of it is here, or a head that promises something else."""
        if self._got < len(self.head):
            return False
        return self._got == len(self.head) + len(self.body) or _HEAD.unpack(self.head)[1] != len(self.body)

    def buffers(self) -> list[memoryview]:
        if self._got < len(self.head):
            return [memoryview(self.head)[self._got :], self.body]
        return [self.body[self._got - len(self.head) :]]

    def take(self, nbytes: int) -> None:
        self._got += nbytes


def _call_on(address: str, rank: int) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Every endpoint listens before any address is known, and holds as many callers as there may be.
        link.connect(address)
        link.sendall(_HELLO.pack(rank))
    except OSError:
        link.close()
        raise
    return link


def _watch(pid: int) -> int | None:
    """A descriptor that becomes readable when process `pid` ends; None where the kernel has none, or it has ended."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
