"""The marker: ``@pytest.mark.ranks(4)`` and all it can say, checked when tests are collected."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeGuard

import pytest

from rankdrill.errors import UsageError
from rankdrill.strictness import Contracts, check_contracts

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from rankdrill.faults import Plan

__all__ = [
    "MARKER_HELP",
    "SIZE_PARAMETER",
    "RanksMark",
    "is_strategy",
    "own_sizes_depth",
    "read_mark",
    "size_label",
    "sizes_depth",
]

SIZE_PARAMETER = "world_size"
"""The parameter, and the fixture, of tests of several world sizes."""

DEFAULT_DEADLINE_S = 30.0
MARKER_HELP = (
    'ranks(n, *more_sizes, backend="gloo", device="cpu", deadline=30, engine="processes", faults=(), init=True, '
    'fresh=False, seed="own", contracts=True, mpi=False): run the test on n ranks with an initialised process group; '
    "several sizes parametrize it; faults are lines of a fault plan; init=False leaves making the group to the test; "
    'fresh=True gives it ranks that have run nothing else; seed="same" gives all ranks the same random numbers; '
    'contracts=False lets ranks do different things in one collective, contracts="strict" has them destroy each group '
    "that they made; mpi=True makes them ranks of MPI.COMM_WORLD; "
    "with @given, ranks(worlds(), faults=plans()) draws both for each example"
)
_OPTIONS = ("backend", "device", "deadline", "engine", "faults", "init", "fresh", "seed", "contracts", "mpi")
_SEEDS = ("own", "same")


@dataclass(frozen=True)
class RanksMark:
    """What the marker says of one test. `drawn_size` and `drawn_faults` are drawn for each example of it."""

    sizes: tuple[int, ...]
    backend: str = "gloo"
    device: str = "cpu"
    deadline: float = DEFAULT_DEADLINE_S
    engine: str = "processes"
    faults: tuple[str, ...] = field(default=())
    init: bool = True
    fresh: bool = False
    seed: str = "own"
    contracts: Contracts = True
    mpi: bool = False
    drawn_size: SearchStrategy[int] | None = None
    drawn_faults: SearchStrategy[Plan] | None = None

    @property
    def draws(self) -> bool:
        """Whether there is something of it that only `@given` can draw."""
        return self.drawn_size is not None or self.drawn_faults is not None

    def plan(self) -> Plan | None:
        """The fault plan, or None; raises `PlanError` if a line does not parse."""
        if not self.faults:
            return None
        from rankdrill.faults import Plan

        return Plan.parse("\n".join(self.faults))


def is_strategy(value: object) -> TypeGuard[SearchStrategy[Any]]:
    """Whether `value` is one of Hypothesis's strategies. Not by importing it: who has one has imported it."""
    strategies: Any = sys.modules.get("hypothesis.strategies")
    return strategies is not None and isinstance(value, strategies.SearchStrategy)


def size_label(size: int) -> str:
    """What stands for the size in the id of a test of several."""
    return f"{size}ranks"


def own_sizes_depth(node: pytest.Item | pytest.Collector) -> int | None:
    """How far in the ``parametrize`` mark stands that gives `node` world sizes; None if there is none.

    The deeper, the nearer: the module is less deep than a class, a class less than a test.
    """
    for at, mark in node.iter_markers_with_node("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        if SIZE_PARAMETER in (map(str.strip, names.split(",")) if isinstance(names, str) else names):
            return node.listchain().index(at)
    return None


def sizes_depth(node: pytest.Item | pytest.Collector) -> int:
    """How far in the marker stands that says the sizes of `node`, likewise."""
    marked = next((at for at, mark in node.iter_markers_with_node("ranks") if mark.args), node)
    return node.listchain().index(marked)


def read_mark(node: pytest.Item | pytest.Collector) -> RanksMark | None:
    """The marker that applies to `node`, nearest first; None if there is none.

    Options given on an outer marker (class, module) hold unless an inner one gives them too.
    Raises `UsageError` naming the value and the remedy.
    """
    marks = list(node.iter_markers("ranks"))
    if not marks:
        return None
    sizes = next((mark.args for mark in marks if mark.args), ())
    options: dict[str, Any] = {}
    for mark in reversed(marks):
        options.update(mark.kwargs)
    return _checked(sizes, options)


def _checked(sizes: Iterable[Any], options: dict[str, Any]) -> RanksMark:
    listed = tuple(sizes)
    if not listed:
        raise UsageError("@pytest.mark.ranks() names no world size; write @pytest.mark.ranks(4), or (2, 4) for both")
    drawn_size = listed[0] if is_strategy(listed[0]) else None
    if drawn_size is not None and len(listed) > 1:
        raise UsageError(
            f"@pytest.mark.ranks{listed!r}: a drawn world size stands alone; put all sizes into the strategy"
        )
    if drawn_size is not None:
        listed = ()
    for size in listed:
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise UsageError(f"@pytest.mark.ranks({size!r}): a world has 1 rank or more; give a whole number")
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        raise UsageError(f"@pytest.mark.ranks has no option {unknown[0]!r}; it has {', '.join(_OPTIONS)}")
    deadline = options.get("deadline", DEFAULT_DEADLINE_S)
    if not isinstance(deadline, int | float) or not deadline > 0:
        raise UsageError(f"deadline={deadline!r} is no time to wait; give seconds above 0")
    for name in ("init", "fresh", "mpi"):
        if not isinstance(options.get(name, False), bool):
            raise UsageError(f"{name}={options[name]!r} is neither True nor False")
    check_contracts(options.get("contracts", True))
    if options.get("seed", "own") not in _SEEDS:
        raise UsageError(f"seed={options['seed']!r} is not known; choose from {', '.join(map(repr, _SEEDS))}")
    faults = options.get("faults", ())
    drawn_faults = faults if is_strategy(faults) else None
    if drawn_faults is not None:
        faults = ()
    elif isinstance(faults, str):
        faults = [faults]
    given = {**options, "faults": tuple(map(str, faults))}
    mark = RanksMark(listed, **given, drawn_size=drawn_size, drawn_faults=drawn_faults)
    plan = mark.plan()
    if plan is not None:
        if mark.mpi:
            from rankdrill.faults.among_mpi import check_among_mpi

            check_among_mpi(plan)
        for size in listed:
            plan.check(size)
    return mark
