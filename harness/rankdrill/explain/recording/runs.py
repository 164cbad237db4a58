"""Which processes were one run of one job: one directory may hold many.

Ranks that made a group have agreed on a name for the run, over the store that they met at. Who came to none is of the
run that its launcher had just begun.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from rankdrill.errors import UsageError
from rankdrill.explain.recording.reading import Recorded, is_alive

__all__ = ["Run", "chosen", "told_apart"]

_OF_A_JOB = (
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_RESTART_COUNT",
    "MASTER_ADDR",
    "MASTER_PORT",
)
_SAYS_WHICH = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
_TOLD = (
    ("SLURM_JOB_ID", "Slurm job"),
    ("SLURM_STEP_ID", "step"),
    ("SLURM_RESTART_COUNT", "restart"),
    ("TORCHELASTIC_RUN_ID", "torchrun's"),
    ("TORCHELASTIC_RESTART_COUNT", "restart"),
)
_ATTEMPT = "TORCHELASTIC_RESTART_COUNT"
_NO_ID = "none"  # of torchrun, where it is given none
TOGETHER_NS = 600 * 10**9  # within which the ranks of one run begin, of which nothing else is known


@dataclass(frozen=True)
class Run:
    """Its processes, by rank; `strangers` are those of unknown rank."""

    ranks: dict[int, Recorded]
    strangers: tuple[Recorded, ...] = ()

    @property
    def start_ns(self) -> int:
        return max((one.start_ns for one in (*self.ranks.values(), *self.strangers)), default=0)

    @property
    def alive(self) -> bool:
        """Whether one of its processes is known to live, on this machine."""
        return any(is_alive(one) for one in self.ranks.values())

    @property
    def name(self) -> str:
        """What its launcher calls it, and when it began: ``Slurm job 45, step 0, begun 2026-11-26 18:03:11``."""
        launcher = next(iter((*self.ranks.values(), *self.strangers))).launcher
        parts = [f"{what} {launcher[name]}" for name, what in _TOLD if launcher.get(name, _NO_ID) not in (_NO_ID, "0")]
        begun = datetime.fromtimestamp(self.start_ns / 1e9).strftime("%Y-%m-%d %H:%M:%S")
        return ", ".join([*parts, f"begun {begun}"])

    @property
    def world_size(self) -> int:
        said = max((one.world_size for one in self.ranks.values()), default=0)
        return max(said, max(self.ranks, default=-1) + 1)


def told_apart(recorded: Iterable[Recorded]) -> list[Run]:
    """The runs, the newest first."""
    every = sorted(recorded, key=lambda one: (one.start_ns, one.name))
    named = [one for one in every if _names(one)]
    parts = [attempt for part in _united(named) for attempt in _attempts(part)]
    for one in every:
        if not _names(one):
            _take_in(one, parts)
    # A process that started ranks, and is none, is a run of its own, and not the one that is asked for.
    parents = {one.parent for one in every}
    runs = [_run(part, parents) for part in parts]
    return sorted(runs, key=lambda run: (bool(run.ranks), run.alive, run.start_ns), reverse=True)


def chosen(runs: Sequence[Run], number: int | None) -> tuple[Run, dict[int, Run]]:
    """The run of that number, from 1 in the order in which they began, or without one the first; and the others.

    Raises `UsageError` where there is none of that number.
    """
    begun = sorted((run for run in runs if run.ranks), key=lambda run: run.start_ns)
    numbered = dict(enumerate(begun, 1))
    if number is None:
        first = runs[0]
    elif number in numbered:
        first = numbered[number]
    else:
        told = "; ".join(f"{at}: {run.name}" for at, run in numbered.items()) or "none"
        raise UsageError(f"--run {number}: the directory holds {told}")
    return first, {at: run for at, run in numbered.items() if run is not first}


def _names(one: Recorded) -> set[str]:
    return {group.run for group in one.groups if group.run}


def _united(named: Sequence[Recorded]) -> list[list[Recorded]]:
    """Those with a name in common are together: a process may have made the group anew."""
    parts: list[tuple[set[str], list[Recorded]]] = []
    for one in named:
        names, members = _names(one), [one]
        apart = []
        for part in parts:
            if part[0] & names:
                names |= part[0]
                members = [*part[1], *members]
            else:
                apart.append(part)
        parts = [*apart, (names, members)]
    return [members for _, members in parts]


def _attempts(part: Sequence[Recorded]) -> list[list[Recorded]]:
    """`part`, by what was started anew: torchrun's store, or a file's, outlives an attempt, and the name with it."""
    attempts: list[list[Recorded]] = []
    for one in sorted(part, key=lambda one: (one.start_ns, one.name)):
        if not attempts or any(_is_anew(one, other) for other in attempts[-1]):
            attempts.append([])
        attempts[-1].append(one)
    return attempts


def _is_anew(one: Recorded, before: Recorded) -> bool:
    """Whether `one` cannot have been beside `before`: it has its rank, or its launcher had counted once more."""
    if one.rank is not None and one.rank == before.rank:
        return True
    counts = [each.launcher.get(_ATTEMPT) for each in (one, before)]
    return bool(one.parent) and one.parent == before.parent and counts[0] != counts[1]


def _take_in(one: Recorded, parts: list[list[Recorded]]) -> None:
    """Put `one` to the newest part of its launch that has no such rank yet, else into one of its own."""
    fitting = [
        part
        for part in parts
        if _of_one_launch(next((other for other in part if other.about), part[0]), one)
        and all(other.rank is None or other.rank != one.rank for other in part)
        and abs(part[0].start_ns - one.start_ns) < TOGETHER_NS
    ]
    if fitting:
        min(fitting, key=lambda part: abs(part[0].start_ns - one.start_ns)).append(one)
    else:
        parts.append([one])


def _of_one_launch(one: Recorded, other: Recorded) -> bool:
    """Whether one launcher started both, as its variables say; where these say little, whether they have one parent.

    Of whom no log is left nothing speaks against it.
    """
    if not (one.about and other.about):
        return True
    if any(one.launcher.get(name) != other.launcher.get(name) for name in _OF_A_JOB):
        return False
    said = any(one.launcher.get(name, _NO_ID) != _NO_ID for name in _SAYS_WHICH)
    return said or one.text("boot") != other.text("boot") or one.parent == other.parent


def _run(part: Sequence[Recorded], parents: Collection[tuple[int, ...]]) -> Run:
    ranks: dict[int, Recorded] = {}
    strangers: list[Recorded] = []
    for one in part:
        starts_ranks = not one.groups and (one.pid, one.number("started")) in parents
        if one.rank is None or one.rank in ranks or starts_ranks:
            strangers.append(one)
        else:
            ranks[one.rank] = one
    return Run(ranks, tuple(strangers))
