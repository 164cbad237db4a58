"""What a way to gather is told about where it runs, and what it is to give back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.gathering.payloads import MB, Payload

DEFAULT_MAX_SIZE = 16_384  # of a fixed buffer, in everybody's version
SLACK = 65_536  # what pickling adds to the largest payload, generously


@dataclass(frozen=True)
class Setting:
    """One rank's place in a measurement. `prefix` begins the names of shared-memory segments."""

    rank: int
    size: int
    payload: Payload
    directory: str
    prefix: str

    @property
    def ranks(self) -> list[int]:
        return list(range(self.size))

    @property
    def max_size(self) -> int:
        largest = max(self.payload.first, self.payload.rest)
        return DEFAULT_MAX_SIZE if self.payload.small else largest + SLACK


Call = Callable[[], list[Any]]
Make = Callable[[Setting, Any], Call]


@dataclass(frozen=True)
class Way:
    """One way to gather. `make` prepares, outside the time that is taken, what is then called again and again.

    `key` selects it on the command line, `family` groups it. `original` is the key of the way it replaces, `needs` the
    name in `rankdrill.gathers` without which it cannot run. With `first_only` the other ranks get an empty list; with
    `flat` what arrives are the bare bytes of the payloads as tensors. Payloads above `upto` bytes need `--slow`;
    `equal_only` says that all ranks' payloads must be of one size, `baseline`
    that ratios have this way below the line, so that one unlucky call must not decide. `pause` is what must come
    between two calls in a row, where a call does not itself keep off the one before.
    """

    key: str
    name: str
    family: str
    make: Make
    original: str = ""
    needs: str = ""
    first_only: bool = False
    flat: bool = False
    upto: int = 1000 * MB
    equal_only: bool = False
    baseline: bool = False
    pause: Callable[[], object] | None = None


OURS, TORCH, ORIGINAL, BARE, MPI = "rankdrill", "torch", "original", "bare", "mpi"
