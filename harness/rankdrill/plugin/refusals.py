"""What cannot run on ranks, refused when tests are collected, in one line that says what to do instead."""

from __future__ import annotations

import sys
import unittest
from collections.abc import Iterable, Mapping
from types import FunctionType
from typing import Any

import pytest

from rankdrill.errors import UsageError
from rankdrill.plugin.marker import SIZE_PARAMETER, RanksMark, own_sizes_depth, read_mark, sizes_depth

__all__ = ["check_worlds", "refusal", "refusals_of_sizes"]

_HARNESSES = {
    "DTensorTestBase": (
        "starts processes of its own; derive the class from unittest.TestCase instead, drop with_comms, and give it "
        'rank, world_size and device_type = "cpu"'
    ),
    "MultiProcessTestCase": (
        "starts processes of its own; derive the class from unittest.TestCase instead, and drop _spawn_processes "
        "and the tests' init_process_group"
    ),
    "MultiProcContinuousTest": (
        "starts processes of its own; derive the class from unittest.TestCase instead: self.rank is "
        "torch.distributed.get_rank(), self.world_size get_world_size()"
    ),
    "MultiThreadedTestCase": (
        "runs ranks as threads of its own; derive the class from unittest.TestCase instead: self.rank is "
        "torch.distributed.get_rank()"
    ),
}
_HARNESSES["MultiProcContinousTest"] = _HARNESSES["MultiProcContinuousTest"]  # torch's spelling until 2.7
_STARTERS = ("_spawn_processes", "_spawn_threads", "run_rank")  # one of these such a harness has, and a copy of one
_PORTING = "see docs/porting.md"
_SYRUPYS = "disable_unused_snapshots"


def refusal(item: pytest.Item) -> str:
    """Why `item`, marked `ranks`, cannot run on ranks; empty if it can."""
    if not isinstance(item, pytest.Function):
        return "@pytest.mark.ranks is for test functions and methods"
    cls = getattr(item, "cls", None)
    harness = next(filter(_is_a_harness, getattr(cls, "__mro__", ())), None)
    if cls is not None and harness is not None:
        return f"{harness.__name__} {_HARNESSES[harness.__name__]}{_what_nobody_calls(cls, harness)}; {_PORTING}"
    if _is_state_machine(cls):
        return (
            "a rule-based state machine draws its rules while it runs, where each rank would draw its own; "
            "draw the rules as a list, with @given(st.lists(...))"
        )
    return _of_snapshots(item) or _of_mark(item)


def _of_snapshots(item: pytest.Function) -> str:
    from rankdrill.plugin import pytest_seam

    # Ranks compare with them, and rank 0 writes them; what its own session has not seen syrupy deletes, or fails for.
    syrupys = any(
        found.argname == "snapshot" and found.func.__module__ == "syrupy"
        for found in pytest_seam.fixture_definitions(item)
    )
    if not syrupys or item.config.getoption(_SYRUPYS, False):
        return ""
    return (
        "syrupy would hold the snapshots of a test on ranks for unused, and delete them with --snapshot-update; "
        "add --snapshot-disable-unused, which syrupy 7 has, to addopts"
    )


def _is_a_harness(cls: type) -> bool:
    return cls.__name__ in _HARNESSES and any(hasattr(cls, starter) for starter in _STARTERS)


def _what_nobody_calls(cls: type, harness: type) -> str:
    """What `cls` and its bases override of `harness`'s own running of tests, and loses with it."""
    own = cls.__mro__[: cls.__mro__.index(harness)]
    lost = [
        f"{base.__name__}.{name}"
        for base in own
        for name, value in vars(base).items()
        if name in vars(harness) and not hasattr(unittest.TestCase, name) and _is_called(value)
    ]
    return f". Nobody calls {' and '.join(lost)} then: move what is set up there to setUp" if lost else ""


def _is_called(value: object) -> bool:
    return isinstance(value, (FunctionType, classmethod, staticmethod))


def refusals_of_sizes(items: Iterable[pytest.Item]) -> list[str]:
    """Of tests that give values to `world_size` themselves: which sizes their marker names and nobody runs.

    A marker further out than these values, on the module say, is that of other tests too; what is nearer holds.
    """
    tests: dict[tuple[object, str], list[pytest.Item]] = {}
    for item in items:
        if SIZE_PARAMETER in _given(item) and item.get_closest_marker("ranks") is not None:
            tests.setdefault((item.parent, getattr(item, "originalname", item.name)), []).append(item)
    return [f"{of[0].nodeid.partition('[')[0]}: {why}" for of in tests.values() if (why := _why_not_all_run(of))]


def _why_not_all_run(of_one_test: list[pytest.Item]) -> str:
    first = of_one_test[0]
    mark, given_at = read_mark(first), own_sizes_depth(first)
    assert mark is not None
    ran = [_given(item)[SIZE_PARAMETER] for item in of_one_test]
    idle = [size for size in mark.sizes if size not in ran]
    if given_at is None:  # by a hook, for this very test
        given_at = len(first.listchain()) - 1
    if not idle or sizes_depth(first) < given_at:
        return ""
    return (
        f"the marker names {SIZE_PARAMETER}={', '.join(map(str, idle))}, which the test's own values for it, "
        f"{', '.join(map(str, dict.fromkeys(ran)))}, leave out; let both name the same sizes, or give the sizes "
        "in the marker alone"
    )


def _given(item: pytest.Item) -> Mapping[str, Any]:
    # Not `item.fixturenames`: pytest leaves out of it what is parametrized and not named by the test.
    given: Mapping[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    return given


def check_worlds(item: pytest.Item, mark: RanksMark) -> None:
    """Raise `UsageError` if this machine cannot have a world that `mark` asks for.

    Not of a test that may be skipped: `skipif(no GPUs)` is how one says that it does not run everywhere.
    """
    if any(item.iter_markers("skip")) or any(item.iter_markers("skipif")):
        return
    from rankdrill.worlds import check_world

    for size in mark.sizes:
        check_world(size, engine=mark.engine, backend=mark.backend, device=mark.device, mpi=mark.mpi)


def _of_mark(item: pytest.Function) -> str:
    try:
        mark = read_mark(item)
        if mark is not None:
            check_worlds(item, mark)
    except UsageError as error:
        return str(error)
    if mark is not None and mark.draws and not hasattr(item.obj, "hypothesis"):
        drawn = "world size" if mark.drawn_size is not None else "faults"
        return (
            f"the marker's {drawn} is a Hypothesis strategy, and nothing draws from it; decorate the test with @given"
        )
    given = _given(item)
    if mark is not None and SIZE_PARAMETER in given and given[SIZE_PARAMETER] not in mark.sizes:
        return (
            f"it parametrizes {SIZE_PARAMETER}={given[SIZE_PARAMETER]!r} itself, which the marker does not name; "
            "write every size there is in @pytest.mark.ranks(…), or give the parameter another name"
        )
    if mark is not None and len(mark.sizes) > 1 and SIZE_PARAMETER not in given:
        return (
            "several world sizes parametrize a test while it is collected, and this mark came later, from a hook; "
            "write the sizes on the function, its class or its module"
        )
    return ""


def _is_state_machine(cls: Any) -> bool:
    stateful: Any = sys.modules.get("hypothesis.stateful")
    if stateful is None or cls is None:
        return False
    return hasattr(cls, "runTest") and "hypothesis.stateful" in {
        getattr(base.__dict__.get("runTest"), "__module__", None) for base in cls.__mro__
    }
