"""The channel: what the ranks of one of the caller's groups talk over, with a timeout of its own on every operation.

After a timeout gloo closes all its connections: whoever else uses that group fails too. So the gathers never use the
caller's group, but a `Line` of their own over the same ranks, made when it is first needed and thrown away when it
breaks; the next call makes the next *generation*. The lines go when the caller's group goes.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from rankdrill.gathers.agreement.assembly import Assembly
from rankdrill.gathers.agreement.line import Line, Parties, Wreck
from rankdrill.gathers.agreement.pinboard import Pinboard
from rankdrill.gathers.agreement.post_mortem import Settlement
from rankdrill.gathers.agreement.slots import HEADER_BYTES
from rankdrill.gathers.host.descriptors import require_descriptors
from rankdrill.gathers.host.liveness import Identity
from rankdrill.gathers.local.endpoint import Address, Endpoint, is_visible, open_endpoint
from rankdrill.gathers.local.hindrance import what_hinders
from rankdrill.gathers.local.meeting import Meeting
from rankdrill.gathers.network import torch_seam
from rankdrill.gathers.network.departed import departed

__all__ = ["SLOT_BYTES", "Channel"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called

# A slot and the small payload that travels with it: at first, and at most where payloads turn out to be so large.
SLOT_BYTES = HEADER_BYTES + 1024
LARGEST_SLOT_BYTES = HEADER_BYTES + 16 * 1024

# The environment's word on what ranks of one machine share: memory (`local`) or, if one rank says so, nothing (`gloo`).
# With `split` they go as if the lower and the upper half of them were on two machines.
LINE_VARIABLE = "RANKDRILL_LINE"
_LOCAL, _GLOO, _SPLIT = _LINES = "local", "gloo", "split"


# Up to 2 N + 1 are taken to connect on one machine and move a payload, N + 4 over gloo (torch 2.13). Where N is larger
# than this the ranks are on several machines.
_RANKS_OF_A_MACHINE = 64


class Channel:
    """This rank's end of what the ranks `members` (global ranks, by rank in the channel) talk over.

    `labels` are the ranks of the caller's group that errors name. `completed` counts the calls that are over,
    `slot_bytes` is the size of the next exchange; both are equal on all ranks that are in step. `hosts` are the ranks
    that share a machine, `sharing` those that also share memory: nobody does where a rank wishes for gloo. `line` is
    what this generation talks over, once it is connected, `timeout_s` how long the caller's group waits.
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
        self._wish = _LOCAL
        self._scratch: torch.Tensor | None = None
        self._wrecks: list[Wreck] = []
        self._device = torch_seam.bound_device(group)
        self.timeout_s = torch_seam.timeout_of(group)
        self._parties: Parties | None = None
        self.name = ""
        if self.size > 1:
            self._parties = Parties(group, self.members, self.rank)
            self.name = f"rankdrill-{torch_seam.name_of(group)}-{'-'.join(map(str, self.labels))}"
        self.line = self._new_line()

    @property
    def board(self) -> Pinboard:
        """Where the ranks of this generation tell one another who they are, and what broke."""
        assert self._parties is not None
        store, name = self._parties.store, f"{self.name}/{self.generation}/"
        return Pinboard(store, name, self.rank, self.size, self._known, lambda rank: departed(store, self.labels[rank]))

    @property
    def one_host(self) -> bool:
        """Whether all ranks are on one machine and talk over it."""
        return len(self.sharing) == 1

    def apart(self, remedy: str) -> dict[int, str]:
        """Which ranks share memory with no other, or not with the first that does, and why; once they have assembled.

        `remedy` is what to do about it that is not about the machines.
        """
        if len(self.hosts) == 1:
            return {}
        hindered = Assembly(self.board).hindrances()
        # A rank that is hindered sees nobody, so it is a host of its own.
        whole = [host for host in self.hosts if not hindered.keys() & set(host)]
        others = [rank for host in whole[1:] for rank in host]
        first = self.labels[whole[0][0]] if whole else 0
        away = f"is on another machine than rank {first}, or shares no memory with it; {remedy}"
        known = {rank: f"shares no memory: {hindrance}, or {remedy}" for rank, hindrance in hindered.items()}
        return dict.fromkeys(others, away) | known

    def machine_of(self, rank: int) -> tuple[int, ...]:
        """The ranks that `rank` shares memory with, itself among them."""
        return next(machine for machine in self.sharing if rank in machine)

    def at_device(self) -> contextlib.AbstractContextManager[Any]:
        """Makes the GPU that the group is bound to, if it is, the current one: no context comes to be on another."""
        return torch.cuda.device(self._device) if self._device is not None else contextlib.nullcontext()

    def prepare(self) -> None:
        """Take what connecting and hanging up will need, so that what is wrong with it is known before.

        Raises MemoryError, OSError where too few files may be open, and ValueError for a line that does not exist.
        """
        self._wish = _wished_line()
        if self.size > 1:
            # gloo ends the process where it finds none (torch 2.13), and whoever gives up over it is blamed by all.
            require_descriptors(self.size + min(self.size, _RANKS_OF_A_MACHINE) + 2)
        if self._scratch is None:
            self._scratch = torch.zeros(1, dtype=torch.uint8, device="cpu")

    def assemble(self, timeout_s: float) -> Settlement | None:
        """Wait for the other members and find out who shares a machine; how this generation ended, if it has.

        Raises AbsentError.
        """
        assembly = Assembly(self.board)
        self._endpoint = endpoint = open_endpoint()
        ended = assembly.come(timeout_s, str(endpoint.address) if endpoint else "")
        if ended is None:
            seen = [self.rank, *self._neighbours(assembly)]
            # Whoever sees all others is fine; whoever does not may know why, or be on another machine.
            hindrance = what_hinders() if len(seen) < self.size else ""
            ended = assembly.compare(seen, self._wish, timeout_s, hindrance)
        if ended is None:
            self.hosts = assembly.hosts()
            self.sharing = _sharing(self.hosts, assembly.wishes())
        return ended

    def _neighbours(self, assembly: Assembly) -> list[int]:
        """The other ranks that this one sees on its machine."""
        return [
            rank
            for rank, text in enumerate(assembly.addresses())
            if text and rank != self.rank and is_visible(Address.parse(text), self._known[rank].pid)
        ]

    def connect(self, timeout_s: float) -> None:
        """Make this generation's line, after `assemble`. Raises LineDownError."""
        self._clear_wrecks()
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None and not self.one_host:
            endpoint.close()
        self.line = self._new_line()
        self.line.connect(self._meeting(endpoint) if endpoint is not None and self.one_host else None, timeout_s)
        self.slot_bytes = SLOT_BYTES

    def _meeting(self, endpoint: Endpoint) -> Meeting:
        paths = [Address.parse(text).path for text in Assembly(self.board).addresses()]
        return Meeting(endpoint, paths, [self._known[rank] for rank in range(self.size)])

    def _new_line(self) -> Line:
        return Line(self._parties, f"{self.name}/{self.generation}", self._scratch)

    def adapt(self, largest_payload: int) -> None:
        """Make room in the next exchange for payloads as large as the largest of this one, if that is little."""
        wanted = HEADER_BYTES + _rounded_up(largest_payload)
        self.slot_bytes = max(wanted, SLOT_BYTES) if wanted <= LARGEST_SLOT_BYTES else SLOT_BYTES

    def hang_up(self) -> None:
        """Close the connections, so that ranks that wait in this generation wait no longer."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.close()
        self._wrecks += self.line.wreck()
        self._clear_wrecks()

    def next_generation(self) -> None:
        """Leave this generation, which is over for all ranks."""
        self.hang_up()
        self.generation += 1

    def _clear_wrecks(self) -> None:
        self._wrecks = [wreck for wreck in self._wrecks if not wreck.at_rest]


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
