"""The controller's side of a test on ranks: pytest's item, whose phases run on a world."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rankdrill.plugin import pytest_seam
from rankdrill.plugin.ahead import Ahead
from rankdrill.plugin.benchmarked import put_in_table
from rankdrill.plugin.commands import Command, GoOn, Open, TestPlace, When
from rankdrill.plugin.ends import Ended, PhaseEnd
from rankdrill.plugin.lasting_logs import LastingLogs
from rankdrill.plugin.marker import SIZE_PARAMETER, RanksMark
from rankdrill.plugin.merge import Merged, end_of, ends_of, merge, phase_of, uneventful
from rankdrill.plugin.pool import WorldKey, WorldPool
from rankdrill.plugin.pytest_seam import TerminalRepr
from rankdrill.plugin.shown import MergedFailure
from rankdrill.plugin.subreports import tell_subreports
from rankdrill.plugin.terminal import DEBUG_S
from rankdrill.plugin.unforked import FORKED
from rankdrill.worlds import Begun, Outcome, Status
from rankdrill.worlds.told import Block

if TYPE_CHECKING:
    from rankdrill.faults import Plan

__all__ = ["RankedItem", "Session"]

_OURS = frozenset({"rank", SIZE_PARAMETER})


@dataclass(frozen=True)
class Session:
    """What all tests on ranks of one pytest session share. `fresh` gives every one of them fresh ranks; `tells` keeps
    what there is to tell of them in files; with `pdb_rank` no deadline runs, for that rank may sit at a prompt.
    """

    pool: WorldPool
    logs: LastingLogs
    ahead: Ahead
    seed: int
    fresh: bool = False
    tells: bool = False
    pdb_rank: int | None = None


class RankedItem(pytest.Function):
    """A test function that runs on ranks. It sets up no fixture here: each rank resolves its own.

    Attributes are given by `make_ranked` (ranked.py): the item already exists when its markers can be read.
    """

    mark: RanksMark
    size: int
    shared: Session
    place: TestPlace
    following: RankedItem | None  # the next in this world
    ahead: RankedItem | None  # the same, if it is the next of the session too
    merged: MergedFailure | None
    durations: dict[str, float]
    outcome: Outcome | None
    told: dict[str, Outcome]  # by phase, what is told of it in files, if there are any
    failed_subtests: dict[str, list[tuple[str, list[int]]]]  # by phase, the headline and the ranks of each
    left: list[tuple[int, str]]
    _uncollected: Outcome | Exception | None
    _alarm: BaseException | None
    _prepared: bool
    _looked_at: tuple[Outcome | None, dict[When, tuple[PhaseEnd, ...]]]

    @cached_property
    def plain(self) -> bool:
        """Whether there is nothing to set up or tear down but what rankdrill itself gives.

        Such a test has one exchange with its ranks, not three: in its setup, whose reports are then those of any test.
        """
        if "request" in pytest_seam.fixture_names(self):
            return False
        return all(self._is_plain(found) for found in pytest_seam.fixture_definitions(self))

    def _is_plain(self, definition: Any) -> bool:
        if definition.argname in _OURS or pytest_seam.gives_nothing_away(definition):
            return True
        # What an installed plugin sets up once for the whole session does not fail on one rank alone.
        module = sys.modules.get(getattr(definition.func, "__module__", ""))
        home = Path(getattr(module, "__file__", None) or "")
        return definition.scope == "session" and home.name != "conftest.py" and home != self.path

    @property
    def key(self) -> WorldKey:
        """Which world it runs on."""
        return WorldKey.of(self.mark, self.size)

    @property
    def run_again(self) -> str:
        """The command line that repeats it, and what else may have been at work."""
        line = f"python -m pytest '{self.nodeid}' --rankdrill-seed={self.shared.seed}"
        before = self.shared.pool.tests_before(self.key)
        if not before:
            return line
        ran = f"its ranks had run {before} test{'s' if before > 1 else ''} before"
        return f"{line}\n({ran}; with fresh=True on the marker, or --rankdrill-fresh, they have run none)"

    def prepare(self) -> None:
        """Have ranks that have imported the test's file, before any clock runs; what goes wrong, `setup` reports."""
        self.merged, self.outcome, self._uncollected = None, None, None
        self.durations, self.told, self.failed_subtests, self.left = {}, {}, {}, []
        self._prepared = True
        if self.shared.ahead.has_begun(self):
            return
        if self.mark.fresh or self.shared.fresh:
            self.shared.pool.renew(self.key)
        if not pytest_seam.is_skipped_by_mark(self):
            try:
                self._uncollected = self.shared.pool.collect(self.key, self.place.path)
            except Exception as error:  # no ranks to be had: here it would end the session, not the test
                self._uncollected = error

    def setup(self) -> None:
        """The setup phase, on all ranks. Fixtures are theirs: none is resolved in this process."""
        if not self._prepared:  # pytest-rerunfailures' next attempt: the last one may have spoiled its ranks
            self.prepare()
        self._prepared = False
        self.merged, self.outcome, self._alarm = None, None, None
        pytest_seam.look_up_only(self)
        if isinstance(self._uncollected, Exception):
            raise self._uncollected
        if self._uncollected is not None:
            self.told["setup"] = self._uncollected
            self._conclude(merge(self._uncollected, self._where, self.run_again))
        if self.plain:
            try:
                outcome = self._run_at_once()
            except pytest.fail.Exception as alarm:  # pytest-timeout's, and meant for the body
                self._alarm = alarm
            else:
                self._go_ahead(outcome)
                self.take("setup", outcome, among_others=True)
        else:
            self.take("setup", self.command(self.opened("setup")))

    def _run_at_once(self) -> Outcome:
        begun = self.shared.ahead.take(self) or self._begin()
        return self.shared.pool.end(self.key, begun, deadline=self._deadline)

    def _begin(self) -> Begun:
        opened = self.opened("setup", "call", *self._torn_down_at_once())
        return self.shared.pool.begin(self.key, opened, plan=self.mark.plan())

    @property
    def _can_begin(self) -> bool:
        """Whether it can before its turn."""
        by_itself = self.plain and not self.mark.faults and not self.mark.fresh
        return by_itself and self.shared.ahead.may(self)

    def _go_ahead(self, outcome: Outcome) -> None:
        """Let the next test begin, if this one has come through all there is and left nothing."""
        following = self.ahead
        if following is None or not following._can_begin or not self.shared.pool.warm(self.key):
            return
        if len(self._uneventful(outcome)) == 3:
            self.shared.ahead.begun(following, following._begin())

    def runtest(self) -> None:
        """The call phase, on all ranks."""
        if self._alarm is not None:
            raise self._alarm
        if self.plain:
            assert self.outcome is not None
            self.take("call", self.outcome)
        else:
            self.take("call", self.command(GoOn(("call",)), plan=self.mark.plan()))

    def teardown(self) -> None:
        """Nothing: there is no instance here whose teardown could be called."""

    def end(self) -> None:
        """The teardown phase, on all ranks that are still there."""
        outcome, self.left = self.outcome, []
        try:
            if outcome is not None and any(ends.of("teardown") for ends in map(ends_of, outcome.ranks) if ends):
                self._note_left(outcome)
                self.take("teardown", outcome, among_others=True)
            elif self._uncollected is None and self.shared.pool.at_rest(self.key):
                following = self.following.place if self.following is not None else None
                outcome = self.command(GoOn(("teardown",), following))
                self._note_left(outcome)
                # After a failure ranks may be out of step: who waits then for the others has been failed already.
                if self.merged is None or not any(rank.status is Status.STUCK for rank in outcome.ranks):
                    self.take("teardown", outcome)
        finally:
            self.outcome, self._looked_at = None, (None, {})
            self.shared.pool.settle(self.key)

    def _note_left(self, outcome: Outcome) -> None:
        self.left = [(rank.rank, what) for rank in outcome.ranks for what in rank.left]

    def tell_of_fresh_ranks(self) -> None:
        """With -v: why the next test gets fresh ranks. Not to be called while output is captured."""
        reporter: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        if self.left and reporter is not None and self.config.get_verbosity() >= 1:
            rank, what = self.left[0]
            reporter.ensure_newline()
            reporter.write_line(f"  rank {rank} {what}: the next test gets fresh ranks")

    def _torn_down_at_once(self) -> tuple[When, ...]:
        # With nothing of its own to tear down, and nothing that the next test does not share.
        following = self.following
        return ("teardown",) if following is not None and following.parent is self.parent else ()

    def _repr_failure_py(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> TerminalRepr:
        """What the ranks had to show, in every phase; anything else as pytest shows it."""
        notes = getattr(excinfo.value, "__notes__", None) or ()
        if self.merged is None and notes and isinstance(excinfo.value, pytest.fail.Exception):
            # An alarm's, and where the ranks were: the frames of this process are all rankdrill's.
            return MergedFailure(str(excinfo.value), [Block("the ranks were", "\n".join(notes))], (), self._where)
        if self.merged is None:
            return super()._repr_failure_py(excinfo, style)
        # Hypothesis notes which example it found.
        if notes and all(name != "notes" for name, _ in self.merged.sections):
            self.merged.sections.insert(0, ("notes", "\n".join(notes)))
        return self.merged

    def get_closest_marker(self, name: str, default: Any = None) -> Any:
        """Of the marks by that name the nearest; none that would have this process forked for the test."""
        return default if name == FORKED else super().get_closest_marker(name, default)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        path, line, name = super().reportinfo()
        return Path(path), line, name

    # ------------------------------------------------------------------------------------ phases

    def opened(self, *phases: When) -> Open:
        """The command to begin this test and run `phases`."""
        following = self.following.place if self.following is not None else None
        return Open(self.place, phases, following, self.mark.seed == "same", getattr(self, "execution_count", None))

    def command(self, command: Command, *, plan: Plan | None = None) -> Outcome:
        """Have all ranks obey `command`."""
        return self.shared.pool.command(self.key, command, plan=plan, deadline=self._deadline)

    @property
    def _deadline(self) -> float:
        return self.mark.deadline if self.shared.pdb_rank is None else DEBUG_S

    def take(self, when: When, outcome: Outcome, *, among_others: bool = False) -> None:
        """Tell what the ranks reported of phase `when`, and raise what it came to unless they passed.

        Of several phases in one outcome the body's is the main one, and all that was printed is put down to it.
        """
        before = sum(self.durations.values()) if outcome is self.outcome else 0.0
        self.outcome = outcome
        quiet = self._uneventful(outcome).get(when)
        last = when == "teardown" and not among_others and self.merged is None
        if self.shared.tells:
            self.told[when] = phase_of(outcome, when, among_others=among_others, last=last)
        if quiet is not None:
            self.durations[when] = max(end.seconds for end in quiet)
            if when == "call":
                self.user_properties.extend((f"rank {rank}", str(end.ended)) for rank, end in enumerate(quiet))
            return
        seen = phase_of(outcome, when, among_others=among_others, last=last)
        ends = [end_of(rank) for rank in seen.ranks]
        # A rank that did not come to the end of it was at it, or had gone, when the run was over.
        unended = outcome.elapsed - before if None in ends else 0.0
        self.durations[when] = max(unended, *(end.seconds for end in ends if end), 0.0)
        logged = [(rank.rank, data) for rank in seen.ranks for data in getattr(end_of(rank), "more", ())]
        if logged:
            self.failed_subtests[when] = tell_subreports(self, logged, self._where, self.run_again)
        for rank in seen.ranks:
            put_in_table(self.config, getattr(end_of(rank), "figures", ()))
        self._keep(when, seen)
        self._conclude(merge(seen, self._where, self.run_again, self._deadline))

    def _uneventful(self, outcome: Outcome) -> dict[When, tuple[PhaseEnd, ...]]:
        """See there; all phases of a test may have ended in one outcome, which is looked at once."""
        if self._looked_at[0] is not outcome:
            self._looked_at = outcome, uneventful(outcome)
        return self._looked_at[1]

    @property
    def _where(self) -> tuple[str, int]:
        path, line, _ = self.location
        return path, (line or 0) + 1

    def _conclude(self, merged: Merged) -> None:
        match merged.ended:
            case Ended.SKIPPED:
                raise pytest.skip.Exception(merged.reason, _use_item_location=True)
            case Ended.XFAILED:
                raise pytest.xfail.Exception(merged.reason)
            case Ended.REJECTED:
                from hypothesis.errors import UnsatisfiedAssumption

                raise UnsatisfiedAssumption
            case Ended.XPASSED:
                self._expect_failure(merged.reason, strict=merged.strict)
            case Ended.FAILED:
                self.merged = merged.failure
                if merged.expected is not None:
                    self._expect_failure(merged.expected)
                assert merged.error is not None
                if isinstance(merged.error, KeyboardInterrupt) and merged.failure is not None:
                    # It ends the session, as anywhere, and pytest shows nothing of the test but this.
                    raise KeyboardInterrupt(merged.failure.headline) from merged.error
                raise merged.error

    def _expect_failure(self, reason: str, *, strict: bool = False) -> None:
        # A mark that was given on the ranks while the test ran, or by what only they evaluate.
        if self.get_closest_marker("xfail") is None:
            self.add_marker(pytest.mark.xfail(reason=reason, strict=strict))

    def _keep(self, when: When, outcome: Outcome) -> None:
        """Keep what the ranks printed, logged, recorded and warned of, culprits' first."""
        first = {rank: place for place, rank in enumerate(outcome.culprits)}
        warned: set[tuple[str, str, str, int]] = set()
        notes: dict[str, None] = {}
        for rank in sorted(outcome.ranks, key=lambda rank: (first.get(rank.rank, len(first)), rank.rank)):
            label = f"of rank {rank.rank}"
            end = end_of(rank)
            for stream, text in (("stdout", rank.stdout), ("stderr", rank.stderr)):
                if text:
                    self.add_report_section(when, f"{stream} {label}", text)
            notes.update(dict.fromkeys(rank.notes))
            if end is not None:
                for title, text in end.sections:
                    self.add_report_section(when, f"{_key(title)} {label}", text)
                self.user_properties.extend((f"rank {rank.rank} {name}", value) for name, value in end.properties)
            ends = ends_of(self.outcome.ranks[rank.rank]) if self.outcome is not None else None
            warned.update(ends.warnings if ends is not None else ())
            if when == "call":
                self.user_properties.append((f"rank {rank.rank}", str(end.ended if end else rank.status)))
        for note in notes:
            self.add_report_section(when, "rankdrill", note)
        for message, category, filename, lineno in sorted(warned):
            # Straight to the summary: the filters have had their say on the ranks.
            kept = warnings.WarningMessage(UserWarning(message), _category(category), filename, lineno)
            told = {"warning_message": kept, "nodeid": self.nodeid, "when": "runtest", "location": None}
            self.ihook.pytest_warning_recorded.call_historic(kwargs=told)


def _key(title: str) -> str:
    """``Captured log call`` → ``log``: pytest puts the rest around it again."""
    words = title.split()
    return " ".join(words[1:-1]) if len(words) > 2 and words[0] == "Captured" else title


def _category(name: str) -> type[Warning]:
    import builtins

    found = getattr(pytest, name, None) or getattr(builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, Warning) else UserWarning
