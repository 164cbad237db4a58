"""The controller's side of a test on ranks: pytest's item, whose phases run on a world."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from _pytest._code.code import TerminalRepr

from rankdrill.errors import UsageError
from rankdrill.plugin import rank_session_calls as calls
from rankdrill.plugin.marker import RanksMark
from rankdrill.plugin.merge import MergedFailure, merge
from rankdrill.plugin.phase import Ended, PhaseEnd, RankTestError, SessionSetup, TestPlace
from rankdrill.plugin.pool import WorldKey, WorldPool
from rankdrill.worlds import Outcome
from rankdrill.worlds.job import Job

__all__ = ["RankedItem", "make_ranked", "size_of"]

SIZE_PARAMETER = "world_size"
_OURS = frozenset({"rank", SIZE_PARAMETER})
_numbers = itertools.count()


class RankedItem(pytest.Function):
    """A test function that runs on ranks. It sets up no fixture here: each rank resolves its own.

    Attributes are given by `make_ranked`: the item already exists when its markers can be read.
    """

    mark: RanksMark
    size: int
    pool: WorldPool
    wanted: SessionSetup
    place: TestPlace
    merged: MergedFailure | None

    @cached_property
    def plain(self) -> bool:
        """Whether there is nothing to set up or tear down but what rankdrill itself gives.

        Such a test needs one exchange with its ranks, not three. With `@given` the setup is a phase of its own: it
        starts the ranks outside the time that Hypothesis measures.
        """
        if hasattr(self.obj, "hypothesis") or "request" in self._fixtureinfo.argnames:
            return False
        return all(_gives_nothing_away(found[-1]) for found in self._fixtureinfo.name2fixturedefs.values())

    @property
    def key(self) -> WorldKey:
        """Which world it runs on."""
        return WorldKey.of(self.mark, self.size)

    def setup(self) -> None:
        """The setup phase, on all ranks. Fixtures are theirs: none is resolved in this process."""
        self.merged = None
        if not self.plain:
            self._phase("setup", calls.setup)

    def runtest(self) -> None:
        """The call phase, on all ranks; with `@given`, once for each example."""
        if hasattr(self.obj, "hypothesis"):
            from rankdrill.plugin.examples import run_examples

            run_examples(self)
        else:
            self._phase("call", calls.call, plan=True)

    def end(self, following: RankedItem | None) -> None:
        """The teardown phase, on all ranks that are still there."""
        # The next test's setup on the ranks tears this one down first.
        soon = self.plain and following is not None and following.parent is self.parent
        if self.pool.warm(self.key) and not soon:
            self._phase("teardown", calls.teardown, following.place if following else None)

    def run_example(self, drawn: dict[str, Any]) -> None:
        """One Hypothesis example on all ranks; raises the culprit's error if it fails."""
        try:
            self._phase("call", calls.example, drawn, plan=True)
        except BaseException:
            if not self.pool.warm(self.key):
                # The next example finds a warm world, and its time is its own.
                self._run(calls.setup)
            raise

    def _repr_failure_py(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> TerminalRepr:
        """What the ranks had to show, in every phase; anything else as pytest shows it."""
        if self.merged is None:
            return super()._repr_failure_py(excinfo, style)
        notes = getattr(excinfo.value, "__notes__", None) or ()  # Hypothesis says here which example it found
        if notes and all(name != "notes" for name, _ in self.merged.sections):
            self.merged.sections.insert(0, ("notes", "\n".join(notes)))
        return self.merged

    def reportinfo(self) -> tuple[Path, int | None, str]:
        path, line, name = super().reportinfo()
        return Path(path), line, name

    # ------------------------------------------------------------------------------------ one phase

    def _phase(self, when: str, body: Callable[..., Any], *args: Any, plan: bool = False) -> None:
        outcome = self._run(body, *args, plan=plan)
        path, line, _ = self.location
        report = merge(outcome, (path, (line or 0) + 1), self.nodeid)
        self._keep(when, outcome)
        match report.ended:
            case Ended.SKIPPED:
                raise pytest.skip.Exception(report.reason, _use_item_location=True)
            case Ended.XFAILED:
                raise pytest.xfail.Exception(report.reason)
            case Ended.REJECTED:
                from hypothesis.errors import UnsatisfiedAssumption

                raise UnsatisfiedAssumption
            case None:
                self.merged = report.failure
                assert report.error is not None
                raise report.error

    def _run(self, body: Callable[..., Any], *args: Any, plan: bool = False) -> Outcome:
        job = Job(body, (self.wanted, self.place, *args), {}, self.mark.plan() if plan else None, with_context=True)
        return self.pool.get(self.key).run_job(job, deadline=self.mark.deadline)

    def _keep(self, when: str, outcome: Outcome) -> None:
        """Keep what the ranks printed, logged, recorded and warned of, culprits' first."""
        first = {rank: place for place, rank in enumerate(outcome.culprits)}
        warned: set[tuple[str, str, str, int]] = set()
        for rank in sorted(outcome.ranks, key=lambda rank: (first.get(rank.rank, len(first)), rank.rank)):
            label = f"of rank {rank.rank}"
            for stream, text in (("stdout", rank.stdout), ("stderr", rank.stderr)):
                if text:
                    self.add_report_section(when, f"{stream} {label}", text)
            end = rank.value if isinstance(rank.value, PhaseEnd) else rank.exception
            for _, name, text in getattr(end, "sections", ()):
                self.add_report_section(when, f"{name} {label}", text)
            if isinstance(end, PhaseEnd):
                self.user_properties.extend((f"rank {rank.rank} {name}", value) for name, value in end.properties)
                warned.update(end.warnings)
            if when == "call":
                self.user_properties.append((f"rank {rank.rank}", _word(rank.value, end) or str(rank.status)))
        for message, category, filename, lineno in sorted(warned):
            # Straight to the summary: the filters have had their say on the ranks.
            kept = warnings.WarningMessage(UserWarning(message), _category(category), filename, lineno)
            told = {"warning_message": kept, "nodeid": self.nodeid, "when": "runtest", "location": None}
            self.ihook.pytest_warning_recorded.call_historic(kwargs=told)


def make_ranked(item: pytest.Function, mark: RanksMark, pool: WorldPool, wanted: SessionSetup) -> RankedItem:
    """Turn `item`, which pytest has just collected, into a test on ranks."""
    kind = type(item)
    item.__class__ = RankedItem if kind is pytest.Function else type(kind.__name__, (RankedItem, kind), {})
    assert isinstance(item, RankedItem)
    item.mark, item.size, item.pool, item.wanted, item.merged = mark, size_of(item, mark), pool, wanted, None
    # Hypothesis's plugin looks up fixtures to check their scopes, and the look-up would set them up here.
    definitions = item._fixtureinfo.name2fixturedefs
    item._request._get_active_fixturedef = lambda name: definitions[name][-1]  # type: ignore[method-assign, assignment]
    item.place = TestPlace(item.nodeid, str(item.path), _tmp_path(item))
    return item


def size_of(item: pytest.Function, mark: RanksMark) -> int:
    """The world size of this very item: its parameter, or the marker's only one."""
    callspec = getattr(item, "callspec", None)
    if callspec is not None and SIZE_PARAMETER in callspec.params:
        return int(callspec.params[SIZE_PARAMETER])
    if len(mark.sizes) > 1:
        raise UsageError(f"{item.nodeid}: ranks{mark.sizes} needs a test function to parametrize")
    return mark.sizes[0]


def _tmp_path(item: pytest.Function) -> str:
    factory: pytest.TempPathFactory = item.config._tmp_path_factory  # type: ignore[attr-defined]
    name = "".join(letter if letter.isalnum() else "_" for letter in item.name)[:30]
    return str(factory.getbasetemp() / f"{name}-ranks-{next(_numbers)}")


def _gives_nothing_away(definition: Any) -> bool:
    # A parameter is, to pytest, a fixture of this name.
    return definition.argname in _OURS or getattr(definition.func, "__name__", "") == "get_direct_param_fixture_func"


def _word(value: Any, end: Any) -> str:
    if isinstance(value, PhaseEnd):
        return str(value.ended)
    return "failed" if isinstance(end, RankTestError) else ""


def _category(name: str) -> type[Warning]:
    import builtins

    found = getattr(pytest, name, None) or getattr(builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, Warning) else UserWarning
