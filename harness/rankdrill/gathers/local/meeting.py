"""How the ranks of one machine come to share a page: the first makes it and hands it to the others, one by one."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack

from rankdrill.gathers.host.liveness import Identity
from rankdrill.gathers.local.doorbell import Doorbell, watch
from rankdrill.gathers.local.endpoint import Endpoint, caller_of
from rankdrill.gathers.local.page import Page

__all__ = ["LineError", "Meeting"]

# What a rank says on the connection that it has opened: its rank.
_HELLO = struct.Struct("<I")
_HANDED = 2  # descriptors: of the page and of its doorbell


class LineError(RuntimeError):
    """The ranks cannot talk any more: one died, hung up, did not come, or sent something else."""


class Meeting:
    """What a member needs to meet the others: its own endpoint, and the addresses and processes of all, by rank."""

    def __init__(self, endpoint: Endpoint, addresses: Sequence[str], processes: Sequence[Identity]) -> None:
        self.endpoint = endpoint
        self.addresses = addresses
        self.processes = processes

    def connect(self, rank: int, timeout_s: float) -> tuple[Page, Doorbell]:
        """The page of these ranks and its doorbell. Raises LineError."""
        deadline = time.monotonic() + timeout_s
        try:
            return self._make(deadline) if rank == 0 else self._be_handed(rank, deadline)
        except OSError as error:
            raise LineError(f"no page with all ranks on this machine: {error}") from error
        finally:
            self.endpoint.close()

    def _make(self, deadline: float) -> tuple[Page, Doorbell]:
        size = len(self.addresses)
        pids = [process.pid for process in self.processes]
        with ExitStack() as undo:
            descriptors = [Page.create(size)]
            undo.callback(os.close, descriptors[0])
            descriptors.append(Doorbell.create())
            undo.callback(os.close, descriptors[1])
            page, doorbell = self._taken_over(0, descriptors)
            undo.pop_all()
            undo.callback(doorbell.close)
            undo.callback(page.close)
            # Whoever has the page already waits there for this rank.
            undo.callback(doorbell.ring)
            undo.callback(page.leave, 1)
            awaited = set(range(1, size))
            while awaited:
                self._await_caller(page, doorbell, deadline)
                hello, link = self.endpoint.let_in(pids, _HELLO.size, deadline)
                with link:
                    other = _HELLO.unpack(hello)[0]
                    if other in awaited and caller_of(link)[0] == pids[other]:
                        socket.send_fds(link, [b"\0"], descriptors)
                        awaited.remove(other)
            undo.pop_all()
        return page, doorbell

    def _await_caller(self, page: Page, doorbell: Doorbell, deadline: float) -> None:
        """Wait until somebody calls. Raises OSError where one of the ranks has ended or hung up, or nobody calls."""
        poll = select.poll()
        poll.register(self.endpoint, select.POLLIN)
        poll.register(doorbell, select.POLLIN)
        while True:
            doorbell.sleep(0)
            if doorbell.gone:
                raise ConnectionResetError(f"the process of rank {min(doorbell.gone)} of the channel ended")
            if left := page.left(1):
                raise ConnectionResetError(f"rank {left[0]} of the channel hung up")
            events = dict(poll.poll(max(deadline - time.monotonic(), 0.001) * 1000))
            if self.endpoint.fileno() in events:
                return
            if not events:
                raise TimeoutError("timed out")

    def _be_handed(self, rank: int, deadline: float) -> tuple[Page, Doorbell]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            # Every endpoint listens before any address is known, and holds as many callers as there may be.
            link.connect(self.addresses[0])
            if caller_of(link) != (self.processes[0].pid, os.geteuid()):
                raise ConnectionRefusedError("the endpoint of rank 0 is another process's")
            link.sendall(_HELLO.pack(rank))
            _await(link, self.processes[0].pid, deadline)
            _, descriptors, _, _ = socket.recv_fds(link, 1, _HANDED, socket.MSG_CMSG_CLOEXEC)
        with ExitStack() as undo:
            for descriptor in descriptors:
                undo.callback(os.close, descriptor)
            if len(descriptors) != _HANDED:
                raise ConnectionResetError("rank 0 of the channel hung up")
            try:
                taken = self._taken_over(rank, descriptors)
            except BaseException:
                # The others have the page, or will, and would wait there for this rank.
                Page.leave_unmapped(descriptors[0], rank)
                os.eventfd_write(descriptors[1], 1)
                raise
            undo.pop_all()
        return taken

    def _taken_over(self, rank: int, descriptors: Sequence[int]) -> tuple[Page, Doorbell]:
        page = Page(descriptors[0], rank, len(self.addresses))
        return page, Doorbell(descriptors[1], self.processes)


def _await(link: socket.socket, pid: int, deadline: float) -> None:
    """Wait until process `pid` says something on `link`, or hangs up. Raises OSError if it ends, or nothing comes."""
    poll, watching = select.poll(), watch(pid)
    poll.register(link, select.POLLIN)
    if watching is not None:
        poll.register(watching, select.POLLIN)
    try:
        events = dict(poll.poll(max(deadline - time.monotonic(), 0.001) * 1000))
        if not events:
            raise TimeoutError("rank 0 of the channel did not come")
        if link.fileno() not in events:
            raise ConnectionResetError("the process of rank 0 of the channel ended")
    finally:
        if watching is not None:
            os.close(watching)
