"""One process of a real job, recorded: its ledger and its log, and what it tells of how it ends."""

from __future__ import annotations

import atexit
import functools
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch.distributed as dist

from rankdrill.boundary import Boundary, install
from rankdrill.boundary.callsites import call_site, raise_site
from rankdrill.boundary.collectives import DrilledGroup
from rankdrill.boundary.methods import METHODS
from rankdrill.boundary.patch import Patch, apply
from rankdrill.diagnosis.ddp import is_ddps_own
from rankdrill.ledger import UNKNOWN_RANK, LedgerWriter, spell_members
from rankdrill.ledger import format as f
from rankdrill.recording import torch_seam
from rankdrill.recording.environment import about_this_process
from rankdrill.recording.files import LEDGER, LOG, VERSION, Log, make_directory, name_here
from rankdrill.recording.heart import Heart
from rankdrill.recording.interrupted import interrupted_by, interrupted_here
from rankdrill.step import DEFAULT_GROUP, Site
from rankdrill.watchdog import STACKS, answer_in, start_watchdog
from rankdrill.worlds.suffering import lost_another

__all__ = ["DEFAULT_BYTES", "FEWEST_BYTES", "MOST_BYTES", "Recording", "start"]

DEFAULT_BYTES = 16 << 20
MOST_BYTES = 64 << 20
SITES = 4096  # lines of the program that a ledger can name
MOST_WORDS = 1000
FEWEST_BYTES = 2 << 20  # those lines, and a few thousand records
_STOPS = ("SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU")
INTERRUPTED = "interrupted"
"""How who is sent a signal ends, by what handles it."""
_MULTIPROCESSING = f"{os.sep}multiprocessing{os.sep}"
_RUN_KEY = "rankdrill/recorded run"


class Recording:
    """What `rankdrill.record` returns. `path` is the ledger's; None where nothing is recorded, and `why` says why."""

    def __init__(self, directory: Path, path: Path | None = None, why: str = "") -> None:
        self.directory = directory
        self.path = path
        self.why = why
        self._closing: list[Callable[[], None]] = []

    @property
    def open(self) -> bool:
        """Whether steps are written down."""
        return bool(self._closing)

    def close(self) -> None:
        """Record no more; what is written stays. Done for you at the end of the process."""
        while self._closing:
            self._closing.pop()()

    def at_close(self, do: Callable[[], None]) -> None:
        """Have `do` done, before what was asked for earlier, when this is closed."""
        self._closing.append(do)

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _capacity_of(size: int) -> int:
    """How many records a ledger of `size` bytes holds."""
    return min((size - f.HEADER_BYTES - SITES * f.SITE_BYTES) // f.RECORD_BYTES, f.MOST_RECORDS)


def start(directory: Path, size: int, hang_after: float | None = None) -> Recording:
    """Record this process from here on; `hang_after` is written down for its watchdog.

    Raises `OSError` where its files cannot be made; then there are none.
    """
    make_directory(directory)
    name = name_here()
    about = about_this_process()
    rank = UNKNOWN_RANK if about["rank"] is None else about["rank"]
    path = directory / f"{name}{LEDGER}"
    writer = LedgerWriter(
        path, rank=rank, world_size=about["world_size"] or 0, capacity=_capacity_of(size), sites=SITES
    )
    wanted = {} if hang_after is None else {"hang_after": hang_after}
    try:
        log = Log(path.with_suffix(LOG), format="rankdrill record", version=VERSION, **about, **wanted)
    except OSError:
        path.unlink()
        raise
    recording = Recording(directory, path)
    if hang_after is not None:
        recording.at_close(answer_in(path.with_suffix(STACKS)))
    be_watched = None if hang_after is None else functools.partial(start_watchdog, directory)
    return _Recorder(writer, log, be_watched).begin(recording, is_rank=rank != UNKNOWN_RANK)


class _Recorder:
    """Writes into one ledger and one log, of the process that made it: a child that it forks is another one."""

    def __init__(self, writer: LedgerWriter, log: Log, be_watched: Callable[[], object] | None) -> None:
        self._writer = writer
        self._log = log
        self._pid = os.getpid()
        self._heart = Heart(writer.beat, be_watched)
        self._alive = False
        self._ended = False
        self._before: Any = None  # what handled exceptions until now
        self._left: tuple[int, dict[str, Any]] = (-1, {})  # by sys.exit: after which step, how, and where
        self._boundary = Boundary(writer, on_end=self._ends_itself, on_group=self._meet, looks_on=True)

    def begin(self, recording: Recording, *, is_rank: bool) -> Recording:
        recording.at_close(self._log.close)
        recording.at_close(install(self._boundary, ignored=[recording.directory], between_ranks_only=True))
        self._boundary.recorded = True
        recording.at_close(self._rest)
        recording.at_close(self._take_groups_there())
        if is_rank:  # it may never come out of making its first group
            self._live()
        self._before = sys.excepthook
        sys.excepthook = self._raised
        recording.at_close(apply([Patch(sys, "exit", self._around_exit)]))
        atexit.register(self._exit)
        return recording

    def _take_groups_there(self) -> Callable[[], None]:
        """Record the groups, too, that have been made before."""
        boundary = self._boundary

        def wrap(group: Any, ranks: tuple[int, ...]) -> Any:
            if isinstance(group, DrilledGroup):
                return group
            drilled = DrilledGroup(group, ranks, boundary)
            self._meet(drilled, earlier=True)
            return drilled

        if not dist.is_initialized():
            return lambda: None
        found = torch_seam.wrap_groups_there(wrap)
        return apply(torch_seam.going_to(found, METHODS, lambda: not boundary.open))

    def _meet(self, group: DrilledGroup, *, earlier: bool = False) -> None:
        told: dict[str, Any] = {
            "group": group.label,
            "members": spell_members(group.global_ranks),
            "backend": torch_seam.backend_of(group.inner),
            "record": self._writer.total,
        }
        if earlier:
            told["calls_before"] = torch_seam.calls_so_far(group.inner)
        if group.label == DEFAULT_GROUP:
            self._writer.introduce(group.place, group.members)
            told |= {"rank": group.place, "world_size": group.members}
            told["run"] = "" if earlier else _name_run(torch_seam.store_of(group.inner))
            self._live()
        self._log.write(**told)

    def _live(self) -> None:
        if not self._alive:
            self._alive = True
            self._heart.start()

    # ------------------------------------------------------------------------------------ the end

    def _rest(self) -> None:
        self._boundary.recorded = False
        self._heart.stop()
        self._say_end(end="closed")

    def _around_exit(self, exit_: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(exit_)
        def leave(status: Any = None, /) -> Any:
            if (found := interrupted_here()) is not None:
                self._left = self._writer.total, {"end": INTERRUPTED, **_place(found[0])}
            elif status not in (None, 0):
                handled = sys.exception()  # below ``except Exception``, it may be
                meant = _meaning(handled) if handled is not None else {}
                self._left = self._writer.total, {"end": "sys.exit", **meant, **_place(call_site(2))}
            return exit_(status)

        return leave

    def _exit(self) -> None:
        at, place = self._left
        if at == self._writer.total:  # it was not kept from leaving
            self._say_end(**place)
        self._say_end(end="exit")

    def _ends_itself(self, call: str) -> None:
        if call.endswith(_STOPS):
            return  # it may go on
        if (found := interrupted_here()) is not None:
            self._say_end(end=INTERRUPTED, **_place(found[0]))
        site = call_site(2)
        if site is not None and _MULTIPROCESSING in site.file:
            self._exit()  # which is how a child of it ends when all is done
        else:
            self._say_end(end=call, **_place(site))

    def _raised(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if (found := interrupted_by(error, trace)) is not None:
            self._say_end(end=INTERRUPTED, error=kind.__name__, **_place(found[0]))
        else:
            self._say_end(end="raised", error=kind.__name__, **_meaning(error), **_place(raise_site(trace)))
        self._before(kind, error, trace)

    def _say_end(self, **told: Any) -> None:
        if os.getpid() == self._pid and not self._ended:
            self._ended = True
            self._log.write(record=self._writer.total, **told)


def _meaning(error: BaseException) -> dict[str, Any]:
    """What `error` means to the ranks. Not what it says, which may be anything, a secret too; but for DDP's words."""
    told: dict[str, Any] = {"lost": True} if lost_another(error) else {}
    words = str(error)
    return told | ({"ddp": words[:MOST_WORDS]} if is_ddps_own(words) else {})


def _place(site: Site | None) -> dict[str, Any]:
    return {} if site is None else {"file": site.file, "line": site.line, "function": site.function}


def _name_run(store: Any) -> str:
    """A name for this run that all its ranks get, whoever asks first; nothing where the store cannot tell."""
    try:
        return str(bytes(store.compare_set(_RUN_KEY, "", secrets.token_hex(8))).decode())
    except (RuntimeError, NotImplementedError, AttributeError, ValueError):
        return ""
