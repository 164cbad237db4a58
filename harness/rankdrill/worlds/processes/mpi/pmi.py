"""The process manager that MPICH's ranks ask when they start: who they are, and where the others can be reached.

An ``mpirun`` is one. Here it is the template, which forks the ranks anyway: each inherits one end of a pair of sockets,
so nothing is listened on and nobody else can ask. It keeps what ranks put, lets them meet, and knows no more of MPI.
"""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
from collections.abc import Callable
from functools import partial

from rankdrill.worlds.processes.mpi.lines import (
    KEY_BYTES,
    NAME_BYTES,
    VALUE_BYTES,
    BadLine,
    LineReader,
    line_of,
)

__all__ = ["ProcessManager"]

MOST_KEYS = 64  # that each rank puts; MPICH 5 puts two or three
READ_BYTES = 1 << 16
_MAPPING = "PMI_process_mapping"  # which ranks share a machine: here all do
_REFUSED = -1


class _Job:
    """The ranks of one world: what they have put, and who has come to the barrier."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.seats: set[_Seat] = set()
        self._waiting: list[_Seat] = []
        self._kept = {_MAPPING: f"(vector,(0,1,{size}))"}

    def put(self, key: str, value: str) -> bool:
        """Keep `value`; whether there was room for it."""
        fits = len(key) <= KEY_BYTES and len(value) <= VALUE_BYTES
        if not fits or (key not in self._kept and len(self._kept) > MOST_KEYS * self.size):
            return False
        self._kept[key] = value
        return True

    def get(self, key: str) -> str | None:
        return self._kept.get(key)

    def come(self, seat: _Seat) -> None:
        """`seat` waits until all have come."""
        self._waiting.append(seat)
        if len(self._waiting) == self.size:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each.say("barrier_out", rc=0)


class _Seat:
    """One rank's connection."""

    def __init__(self, job: _Job, sock: socket.socket, leave: Callable[[_Seat], None]) -> None:
        self.sock = sock
        self.job = job
        self._leave = leave
        self._reader = LineReader()
        self._answers: dict[str, Callable[[dict[str, str]], None]] = {
            "init": lambda words: self.say("response_to_init", pmi_version=1, pmi_subversion=1, rc=0),
            "get_maxes": lambda words: self.say(
                "maxes", rc=0, kvsname_max=NAME_BYTES, keylen_max=KEY_BYTES, vallen_max=VALUE_BYTES
            ),
            "get_appnum": lambda words: self.say("appnum", rc=0, appnum=0),
            "get_universe_size": lambda words: self.say("universe_size", rc=0, size=job.size),
            "get_my_kvsname": lambda words: self.say("my_kvsname", rc=0, kvsname=job.name),
            "barrier_in": lambda words: job.come(self),
            "put": self._put,
            "get": self._get,
            "finalize": lambda words: self.say("finalize_ack", rc=0),
            "abort": lambda words: None,  # it ends its process next, which is seen
            "publish_name": partial(self._refuse, "publish_result"),
            "unpublish_name": partial(self._refuse, "unpublish_result"),
            "lookup_name": partial(self._refuse, "lookup_result"),
        }

    def hear(self) -> None:
        """Answer what the rank has asked by now; who speaks otherwise than by the protocol is hung up on."""
        try:
            raw = self.sock.recv(READ_BYTES)
            if not raw:
                self._leave(self)
                return
            for words in self._reader.feed(raw):
                self._answer(words)
        except BlockingIOError:
            return
        except (BadLine, OSError):
            self._leave(self)

    def say(self, command: str, **words: object) -> None:
        """Tell the rank; one that reads nothing, which has asked and so must, is hung up on."""
        try:
            self.sock.sendall(line_of(command, words))
        except OSError:
            self._leave(self)

    def _answer(self, words: dict[str, str]) -> None:
        if "endcmd" in words:  # of a request for more processes, that had a line for each of its words
            self._refuse("spawn_result", words)
        elif "cmd" in words:
            answer = self._answers.get(words["cmd"])
            if answer is None:
                raise BadLine(words["cmd"])
            answer(words)

    def _put(self, words: dict[str, str]) -> None:
        kept = self.job.put(words.get("key", ""), words.get("value", ""))
        self.say("put_result", rc=0 if kept else _REFUSED, msg="success" if kept else "no_room")

    def _get(self, words: dict[str, str]) -> None:
        value = self.job.get(words.get("key", ""))
        found = value is not None
        self.say("get_result", rc=0 if found else _REFUSED, msg="success" if found else "key_not_found", value=value)

    def _refuse(self, result: str, words: dict[str, str]) -> None:
        self.say(result, rc=_REFUSED, msg="a_world_has_the_ranks_that_it_has", info="no")


class ProcessManager:
    """Answers the ranks of all worlds that a template forks; `selector` tells when one asks, its data what to do."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._jobs: dict[str, _Job] = {}

    def seat(self, world: str, size: int) -> socket.socket:
        """The end of a connection that the next rank of `world` is to inherit."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        job = self._jobs.setdefault(world, _Job(f"kvs_{secrets.token_hex(6)}", size))
        seat = _Seat(job, ours, self._leave)
        job.seats.add(seat)
        self._selector.register(ours, selectors.EVENT_READ, seat.hear)
        return theirs

    def close(self) -> None:
        """In a fork: these are not its connections."""
        for job in self._jobs.values():
            for seat in job.seats:
                seat.sock.close()

    def _leave(self, seat: _Seat) -> None:
        job = seat.job
        if seat not in job.seats:
            return
        job.seats.discard(seat)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(seat.sock)
        seat.sock.close()
        if not job.seats:
            self._jobs = {world: each for world, each in self._jobs.items() if each is not job}
