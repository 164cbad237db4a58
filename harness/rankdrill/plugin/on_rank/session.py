"""The rank's pytest session: it collects the same files as the controller and runs the tests it is told to.

It uses pytest's own machinery for all of it (assertion rewriting, fixtures of every scope, hooks of plugins and
conftest files), so a test body behaves as in any session.
"""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path

import pytest
import torch.distributed as dist

from rankdrill.errors import WorldError
from rankdrill.plugin import pytest_seam
from rankdrill.plugin.commands import Collect, Command, Finish, GoOn, Open, SessionSetup, TestPlace
from rankdrill.plugin.ends import Ends
from rankdrill.plugin.lasting_logs import LastingLogs
from rankdrill.plugin.on_rank.collecting import Collecting
from rankdrill.plugin.on_rank.debugging import Debugging
from rankdrill.plugin.on_rank.ending import end_session
from rankdrill.plugin.on_rank.fixtures import rank_plugin
from rankdrill.plugin.on_rank.foundation import laid
from rankdrill.plugin.on_rank.inner_engines import draw_alike, refuse_state_machines
from rankdrill.plugin.on_rank.measuring import Measuring
from rankdrill.plugin.on_rank.protocol import OpenTest
from rankdrill.plugin.on_rank.region import Region
from rankdrill.plugin.on_rank.reports import failed
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.processes.state import Generators, reseed, seed_of

__all__ = ["RankSession"]

_KEY = "pytest session"
_NO_AUTOLOAD = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"


class RankSession:
    """One pytest session inside one rank; lives as long as the rank."""

    def __init__(self, context: RankContext, wanted: SessionSetup) -> None:
        self.context = context
        self.region = Region(context)
        self.test: OpenTest | None = None
        self._items: dict[str, pytest.Item] = {}
        self._collected: set[str] = set()
        self._collecting = Collecting()
        self._seed: int = wanted.options["rankdrill_seed"]
        self._seeded_by_file: dict[str, Generators] = {}
        reseed(seed_of(self._seed, "", None))  # for what conftest files draw
        draw_alike(self._seed)
        refuse_state_machines(context.world_size)
        with context.boundary.closed():
            self._measuring = Measuring(wanted.measured, context) if wanted.measured is not None else None
            self.config = _config(wanted, context)
            plugin = rank_plugin(context, self.region, lambda: self.test, wanted.worker)
            self.config.pluginmanager.register(plugin, "rankdrill-rank")
            self.config.pluginmanager.register(self._collecting, "rankdrill-collecting")
            if self._measuring is not None:
                self.config.pluginmanager.register(self._measuring, "rankdrill-measuring")
            with warnings.catch_warnings(record=True):  # the controller's plugins have warned of the same already
                pytest_seam.configure(self.config)
            context.take_last_words()  # pytest's own plugin has them among what the test prints
            known = set(self.config.getini("markers"))
            for line in wanted.markers:
                if line not in known:
                    self.config.addinivalue_line("markers", line)
            self._logs = LastingLogs()
            self._logs.keep()
            self.session = pytest_seam.start_session(self.config)
            kind = self.config.getoption("usepdb_cls", None)
            debugging = Debugging(wanted.lent, context, wanted.post_mortem, kind)
            self.config.pluginmanager.register(debugging, "rankdrill-debugging")
            debugging.install()
            if wanted.live_log:
                pytest_seam.log_to(self.config, context.log)
        # torch's own telemetry logs every failed collective at debug level, in a line as long as a screen.
        logging.getLogger("c10d-NullHandler-default").disabled = True

    @classmethod
    def of(cls, context: RankContext, wanted: SessionSetup | None) -> RankSession:
        """The rank's session, made when it is first told what from."""
        if _KEY not in context.kept:
            assert wanted is not None, "a rank begins with collecting a file"
            context.kept[_KEY] = cls(context, wanted)
        session: RankSession = context.kept[_KEY]
        return session

    def obey(self, command: Command) -> Ends:
        """Do what the controller asks outside of a test; an `Open` takes the commands that belong to it itself."""
        __tracebackhide__ = True
        try:
            return self._do(command)
        finally:
            if self._measuring is not None:
                self._measuring.save()

    def _do(self, command: Command) -> Ends:
        __tracebackhide__ = True
        match command:
            case Collect(path=path):
                self._collect(path)
                return Ends()
            case Open():
                return self._run(command)
            case Finish():
                self._finish()
                return Ends()
            case GoOn(phases=("teardown",), following=following):
                return self._tear_down_to(following)
            case _:
                return Ends()  # the test that this goes on with could not even begin

    def find(self, place: TestPlace) -> pytest.Item:
        """The item of `place`; its file is collected once."""
        self._collect(place.path)
        found = self._found(place.nodeid)
        if found is None:
            why = "\n".join(self._collecting.failed) or self._in_its_place(place)
            raise WorldError(
                f"ranks did not collect {place.nodeid}, the controller did: {why}",
                self.context.index,
            )
        return found

    def _in_its_place(self, place: TestPlace) -> str:
        """What ranks collected where the controller has the test, and how both can have the same."""
        function = place.nodeid.partition("[")[0]
        others = [known.removeprefix(function) for known in self._items if known.startswith(f"{function}[")]
        if not others:
            return "whether it is collected differs between processes (a condition on the environment or the time?)"
        return (
            f"{', '.join(others[:3])}{' …' if others[3:] else ''} stand there. Its parameters differ between processes:"
            " draw them with a fixed seed (random.Random(0)), sort what has no order, or give ids= that stay the same"
        )

    def _found(self, nodeid: str) -> pytest.Item | None:
        # What a conftest file has deselected here only is still a test that the controller asks for.
        return self._items.get(nodeid) or self._collecting.items.get(nodeid)

    def neighbour(self, place: TestPlace | None) -> pytest.Item | pytest.Collector | None:
        """What is to stay up for `place`: its item or, while its file is still to be collected, the directory above it.

        Hooks are given it as the next item; what pytest asks of that is what it shares with this one.
        """
        if place is None or place.path in self._collected:
            return self._found(place.nodeid) if place is not None else None
        return self._collecting.above(Path(place.path)) or self.session

    def _collect(self, path: str) -> None:
        if path in self._collected:
            return
        self._collected.add(path)
        self.region.forget()
        self._logs.release()
        # Values that are drawn at import, for a parametrize say, are those of one test: all ranks draw the same.
        before = Generators.seeded(seed_of(self._seed, path, None))
        with self.context.boundary.closed():
            for item in pytest_seam.collect_file(self.session, path):
                self._items[item.nodeid] = item
        # What importing the file has left is what every test of it begins with.
        self.context.group = dist.group.WORLD if dist.is_initialized() else None
        self.context.left.clear()
        # A file that seeds when it is imported wants these numbers in its tests, and the same on all ranks.
        seeded = before.seeded_since()
        if seeded is not None:
            self._seeded_by_file[path] = seeded

    def _run(self, opened: Open) -> Ends:
        __tracebackhide__ = True
        item = self.find(opened.place)
        pytest_seam.teardown_to(self.session, item)
        seed = self._seed_for(opened)
        self._logs.begin_test(only_body="teardown" in opened.phases)
        pytest_seam.forget_sections(item)
        pytest_seam.locate(item, opened.place.location)
        if opened.attempt is not None:
            item.execution_count = opened.attempt  # type: ignore[attr-defined]  # where its plugins put it
        self.test = test = OpenTest(self.context, item, opened, self.neighbour, seed)
        try:
            item.ihook.pytest_runtest_protocol(item=item, nextitem=self.neighbour(opened.following))
        finally:
            self.test = None
        self.region.end(item)
        return self.obey(test.stray) if test.stray is not None else test.conclude()

    def _tear_down_to(self, following: TestPlace | None) -> Ends:
        """Between tests: one that was skipped in the controller may be the last that shared something."""
        __tracebackhide__ = True
        try:
            pytest_seam.teardown_to(self.session, self.neighbour(following))
        except BaseException:
            return Ends((failed("teardown", pytest.ExceptionInfo.from_current()),)).given()
        return Ends()

    def _seed_for(self, opened: Open) -> int | None:
        """Seed for the test; returns the seed if it is this rank's alone."""
        index = None if opened.same_seed else self.context.index
        seed = seed_of(self._seed, opened.place.nodeid, index)
        own = not self.region.seeded
        if own:
            reseed(seed)
        if opened.place.path in self._seeded_by_file:
            self._seeded_by_file[opened.place.path].put_back()
        return seed if own and index is not None and self.context.world_size > 1 else None

    def _finish(self) -> None:
        self._logs.close()
        end_session(self.config, self.session, self.context.index)


def _config(wanted: SessionSetup, context: RankContext) -> pytest_seam.Config:
    # The controller names the plugins it has. Loading them all again by entry point would also search every
    # installed distribution's files for modules to rewrite, in each rank.
    before = os.environ.get(_NO_AUTOLOAD)
    os.environ[_NO_AUTOLOAD] = "1"
    options = {**wanted.options, "basetemp": str(_own_basetemp(context))}
    try:
        with warnings.catch_warnings():
            # What there is to say about options and plugins, the controller's own session says.
            warnings.simplefilter("ignore")
            config = laid(wanted.foundation)
            return pytest_seam.make_config(config, options, wanted.args, wanted.ini, wanted.aliases)
    finally:
        if before is None:
            del os.environ[_NO_AUTOLOAD]
        else:
            os.environ[_NO_AUTOLOAD] = before


def _own_basetemp(context: RankContext) -> Path:
    return context.directory.parent / f"rank-{context.index}-tmp"
