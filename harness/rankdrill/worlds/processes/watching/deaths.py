"""How ranks ended: at which line of theirs, by which call, by the kernel for want of memory, or with the template."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from signal import SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, Signals

from rankdrill.step import MPI_ABORT
from rankdrill.worlds.death import Death
from rankdrill.worlds.dumps import innermost_site, sections
from rankdrill.worlds.processes.client import TemplateClient
from rankdrill.worlds.processes.failing import failures_in
from rankdrill.worlds.processes.last_words import BY, NOTED, WITH, last_words_of
from rankdrill.worlds.processes.watching.activity import STOPPED
from rankdrill.worlds.processes.watching.kernel_log import KernelLog
from rankdrill.worlds.processes.watching.stacks import of_the_body
from rankdrill.worlds.rank_outcome import STOPPED_BY, RankOutcome, Status

__all__ = ["Inquest"]

_FATAL = "Fatal Python error: "
_REPORT = re.compile(rf"^({re.escape(BY)}|{re.escape(_FATAL)})(.*)$", re.MULTILINE)
_NOTED = re.compile(rf"^{re.escape(NOTED)}(\d+): (.*)$", re.MULTILINE)
_WORDS: dict[int, str] = {
    SIGABRT: "Aborted",
    SIGBUS: "Bus error",
    SIGFPE: "Floating point exception",
    SIGILL: "Illegal instruction",
    SIGSEGV: "Segmentation fault",
}
_STOP_SIGNALS = frozenset(sent.name for sent in (SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU))
_NO_STACK = ("Extension modules:", "Python runtime state:")  # what Python prints beside the stacks
MOST_NOTES = 3  # of one rank, the newest
_READ_BYTES = 1 << 22  # of what a rank left; the fault handler prints at most 100 threads of 100 frames each


@dataclass(frozen=True)
class _LastWords:
    """What was written at one fatal signal, `about` that in Python's words, or before one call, `about` its name."""

    by_call: bool
    about: str
    stack: str


class Inquest:
    """Finds out how the ranks in `directory` died, once their run is over."""

    def __init__(self, client: TemplateClient, directory: Path, log: KernelLog | None = None) -> None:
        self._client = client
        self._directory = directory
        self._log = log or KernelLog()
        self._kills: int | None = None
        self._began_ns = 0

    def begin(self) -> None:
        """A run begins: what the kernel has killed before has nothing to do with it."""
        self._kills = self._count_kills()
        self._log.skip()
        self._began_ns = time.monotonic_ns()

    def close(self) -> None:
        """No more runs are to be looked into."""
        self._log.close()

    def explain(
        self, ranks: Sequence[RankOutcome], orphans: Collection[int], pids: Mapping[int, int]
    ) -> list[RankOutcome]:
        """`ranks`, those that died with all that can be known of it; `orphans` went with the template.

        `pids` are their processes, by rank.
        """
        dead = [rank for rank in ranks if rank.status is Status.DIED]
        ranks = [self._stopped(rank) if rank.doing == STOPPED else rank for rank in ranks]
        ranks = [self._with_its_notes(rank) for rank in ranks]
        if not dead:
            return ranks
        of_template = self._end_of_template() if any(rank.rank in orphans for rank in dead) else ""
        told = [self._with_its_words(rank, of_template if rank.rank in orphans else "") for rank in ranks]
        if any(map(_is_killed, told)):
            told = self._as_logged(told, pids)
        unknown = sum(_is_killed(rank) for rank in told)
        by_kernel = self._by_kernel(unknown) if unknown else ""
        return [_killed(rank, by_kernel) if _is_killed(rank) else rank for rank in told]

    def _stopped(self, rank: RankOutcome) -> RankOutcome:
        """`rank`, which is stopped, with what it said of that itself, if it did."""
        listed = _words_in(self._read(rank.rank))
        own = [words for words in listed if words.by_call and words.about.partition(WITH)[2] in _STOP_SIGNALS]
        if not own:
            return rank
        site = innermost_site(own[-1].stack)
        return replace(
            rank, doing=f"{STOPPED_BY}{own[-1].about}", site=site, stack=of_the_body(own[-1].stack).strip("\n")
        )

    def _with_its_notes(self, rank: RankOutcome) -> RankOutcome:
        text = self._read(rank.rank)
        noted = _NOTED.findall(text)
        notes = [f"rank {rank.rank}: {told}" for at_ns, told in noted if int(at_ns) >= self._began_ns][-MOST_NOTES:]
        if not notes:
            return rank
        return replace(rank, notes=(*rank.notes, *notes), failures=failures_in(text, self._began_ns))

    def _with_its_words(self, rank: RankOutcome, orphaned: str) -> RankOutcome:
        if rank.status is not Status.DIED or rank.death is None:
            return rank
        if orphaned:
            return replace(rank, orphaned=orphaned)
        found = _words_on(rank.death, self._read(rank.rank)) or _words_on(rank.death, rank.stderr)
        return _with_words(rank, rank.death, found) if found is not None else rank

    def _read(self, rank: int) -> str:
        path = last_words_of(self._directory, rank)
        try:
            with path.open("rb") as file:
                file.seek(max(path.stat().st_size - _READ_BYTES, 0))
                return file.read().decode("utf-8", "replace")
        except FileNotFoundError:  # it died before it was a rank
            return ""

    # ---------------------------------------------------------------------------------- the kernel

    def _count_kills(self) -> int | None:
        group = self._client.memory_cgroup
        return group.kills() if group is not None else None

    def _as_logged(self, ranks: Sequence[RankOutcome], pids: Mapping[int, int]) -> list[RankOutcome]:
        """`ranks`, where the kernel's log says of some whom it took, and so of the others whom it did not."""
        logged = self._log.killed_for_memory()
        found = {rank: logged[pid] for rank, pid in pids.items() if pid in logged}
        if not found:
            return list(ranks)
        self._kills = None  # it has been told whom
        return [
            _killed(rank, self._for_memory(of_machine=found[rank.rank]))
            if rank.rank in found and _is_killed(rank)
            else rank
            for rank in ranks
        ]

    def _for_memory(self, *, of_machine: bool) -> str:
        return f"by the kernel: out of memory ({'of the machine' if of_machine else self._client.memory_cgroup})"

    def _by_kernel(self, killed: int) -> str:
        """Who killed `killed` processes, if it was the kernel; nobody can know who else sends a signal."""
        now = self._count_kills()
        if now is None or self._kills is None or now <= self._kills:
            return ""
        rise = now - self._kills
        if rise >= killed:
            return self._for_memory(of_machine=False)
        return f"while the kernel killed {rise} of {killed} processes for memory ({self._client.memory_cgroup})"

    # ---------------------------------------------------------------------------------- the template

    def _end_of_template(self) -> str:
        death = self._client.ending()
        if death is None:
            return "the process that ranks are forked from has closed what ties them to it"
        if death.signal == SIGKILL:
            death = replace(death, how=self._by_kernel(1))
        return f"the process that ranks are forked from {'was ' if death.signal is not None else ''}{death}"


def _is_killed(rank: RankOutcome) -> bool:
    """Whether it was killed, and by whom has not been told."""
    told = rank.by_plan or rank.orphaned or (rank.death is not None and rank.death.how)
    return rank.death is not None and rank.death.signal == SIGKILL and not told


def _killed(rank: RankOutcome, how: str) -> RankOutcome:
    assert rank.death is not None
    return replace(rank, death=replace(rank.death, how=how))


def _words_on(death: Death, text: str) -> _LastWords | None:
    """The last of the words in `text` that are about this death; a process that it had forked may have left others."""
    fatal = None if death.signal is None else _WORDS.get(death.signal)
    listed = _words_in(text)
    calls = [words for words in listed if words.by_call and _led_to(words.about, death)]
    signals = [words for words in listed if not words.by_call and words.about == fatal]
    return next(reversed([*signals, *calls]), None)


def _led_to(call: str, death: Death) -> bool:
    """Whether it may have been `call`, as it was announced, that the process ended by."""
    function, _, sent = call.partition(WITH)
    if death.signal is None:
        return function in ("os._exit", MPI_ABORT)
    return (bool(sent) and sent in _named_signals(death.signal)) or (function == "os.abort" and death.signal == SIGABRT)


def _named_signals(number: int) -> list[str]:
    return [each.name for each in Signals if each == number]


def _words_in(text: str) -> list[_LastWords]:
    found = list(_REPORT.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return [
        _LastWords(match[1] == BY, match[2].strip().replace("-", " "), text[match.end() : end])
        for match, end in zip(found, ends, strict=False)
    ]


def _with_words(rank: RankOutcome, death: Death, words: _LastWords) -> RankOutcome:
    lines = [line for line in of_the_body(words.stack).splitlines() if not line.startswith(_NO_STACK)]
    how = f"by {words.about.partition(WITH)[0]}" if words.by_call else ""
    if not any(current for current, _ in sections(words.stack)):
        how = "in a thread that runs no Python"
    site = innermost_site(words.stack)
    return replace(rank, death=replace(death, how=how, site=site), stack="\n".join(lines).strip("\n"))
