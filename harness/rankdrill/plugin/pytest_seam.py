"""The one module that touches private names of pytest; `tests/plugin/test_pytest_seam.py` fails when one changes.

What is used, and why:

- ``_pytest.config.get_config``, ``Config.option``, ``Config.invocation_params``, ``Config.parse``,
  ``Config._do_configure``, ``_ensure_unconfigure``, ``Config._parser`` and its ``_inidict`` and ``_ini_aliases``: a
  rank's session is made with the controller's options, as pytest-xdist makes its workers', and knows the ini options of
  plugins that it does not load. It begins in the template, with what does not depend on tests.
- ``_pytest.fixtures.FixtureManager`` and its ``pytest_plugin_registered``, ``FixtureFunctionDefinition``: a rank does
  not search plugins for fixtures, which the template has done.
- ``_pytest.main.Session.from_config``, ``perform_collect``, ``session._setupstate``: the rank collects single files and
  tears down what the next test does not need.
- ``session._fixturemanager`` and its ``_pending_conftests`` (pytest 9.1): conftest files that later files need.
- ``item._initrequest``, ``item._request`` and its ``_get_active_fixturedef``, ``item.funcargs``, ``item._fixtureinfo``,
  ``item._report_sections``, ``item._instance``: what pytest's own runner and fixtures keep on an item.
- ``_pytest.subtests.failed_subtests_key`` (pytest 9): the terminal fails a test whose subtests failed by this count.
- ``_pytest.unittest.TestCaseFunction`` and its ``_getinstance``, ``_pytest.python.CallSpec`` (in older ones
  ``CallSpec2``), ``_pytest.scope.Scope``: pytest parametrizes no method of a unittest class; the size of a world does.
- ``_pytest.skipping.evaluate_skip_marks``: no ranks are started for a test that is skipped.
- ``_pytest._code.code``: how a failure is shown, ``TerminalRepr`` and ``ReprFileLocation``.
- the plugin ``logging-plugin``, its ``_log_cli_enabled``, ``log_cli_handler`` and ``log_cli_level``: what ranks log is
  shown as pytest shows logs live, past its capture.
- ``_pytest.logging.catching_logs`` and ``LogCaptureHandler``: the handlers for what a test logs are attached by it, for
  each phase; see `lasting_logs.py`. Where pytest attaches them to the root logger alone (before 9.1) it is left alone.
- ``metafunc._calls``: whether the user's own ``pytest_generate_tests`` has given values to a parameter.
- ``config._tmp_path_factory``: the session's directory for temporary files.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import _pytest.fixtures
import _pytest.logging
import _pytest.python
import pytest
from _pytest._code.code import ReprFileLocation, TerminalRepr
from _pytest._io import TerminalWriter
from _pytest.config import Config, get_config
from _pytest.main import Session
from _pytest.scope import Scope
from _pytest.skipping import evaluate_skip_marks
from _pytest.unittest import TestCaseFunction

from rankdrill.plugin.fixture_holders import fixture_holder

__all__ = [
    "Config",
    "ReprFileLocation",
    "Session",
    "TerminalRepr",
    "TerminalWriter",
    "attach_logs_by",
    "base_temp",
    "begin_config",
    "collect_file",
    "configure",
    "conftests_kept",
    "count_failed_subtest",
    "end_request",
    "failed_subtests",
    "fixture_definitions",
    "fixture_names",
    "forget_sections",
    "gives_nothing_away",
    "has_values_for",
    "ini_options",
    "is_skipped_by_mark",
    "is_unittest_method",
    "kept_by_instance",
    "locate",
    "log_to",
    "look_up_only",
    "make_config",
    "parametrized_method",
    "renew_request",
    "search",
    "shows_logs",
    "start_session",
    "teardown_to",
    "tell_log",
    "unconfigure",
]

# A template may have imported it already; what pytest would say of that is of no use to anybody.
_QUIET = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"

IniOption = tuple[str, Any, Any]
"""Help, type and default, as `Parser.addini` keeps them."""


def begin_config(blocked: Iterable[str], plugins: Iterable[tuple[str, Any]]) -> Config:
    """A configuration that knows nothing of a test yet: pytest's own plugins and the modules `plugins` by name.

    Those that are `blocked` by name it has not.
    """
    config = get_config([arg for name in blocked for arg in ("-p", f"no:{name}")])
    for name, module in plugins:
        if not config.pluginmanager.is_blocked(name) and not config.pluginmanager.is_registered(module):
            config.pluginmanager.register(module, name)
    return config


def make_config(
    config: Config,
    options: Mapping[str, Any],
    args: Sequence[str],
    ini: Mapping[str, IniOption],
    aliases: Mapping[str, str],
) -> Config:
    """`config`, which has been begun, here and now: with `options`, and the ini options of plugins that it has not."""
    config.invocation_params = Config.InvocationParams(args=tuple(args), plugins=None, dir=Path.cwd())
    config.option.__dict__.update(options)
    known: dict[str, Any] = config._parser._inidict
    for name, option in ini.items():
        known.setdefault(name, option)
    known_aliases: dict[str, str] = getattr(config._parser, "_ini_aliases", {})
    for alias, name in aliases.items():
        known_aliases.setdefault(alias, name)
    config.parse(["-W", _QUIET, *args], addopts=False)
    # Its own asks the reporter, which a rank has none of; pytest 8.4 explains comparisons by what this gives.
    unheard = TerminalWriter(io.StringIO())
    vars(config)["get_terminal_writer"] = lambda: unheard
    return config


def ini_options(config: Config) -> tuple[dict[str, IniOption], dict[str, str]]:
    """The ini options that the plugins of `config` have declared, and other names for them."""
    return dict(config._parser._inidict), dict(getattr(config._parser, "_ini_aliases", {}))


def configure(config: Config) -> None:
    """Have the plugins do what they do before a session."""
    config._do_configure()


def unconfigure(config: Config) -> None:
    """Have the plugins do what they do after a session."""
    config._ensure_unconfigure()


def start_session(config: Config) -> Session:
    """A session that collects and runs nothing by itself."""
    session = Session.from_config(config)
    session.exitstatus = pytest.ExitCode.OK  # as pytest's own loop sets it; plugins add theirs at the end
    fixtures: Any = _pytest.fixtures
    before, fixtures.FixtureManager = fixtures.FixtureManager, _FixtureManager
    try:
        config.hook.pytest_sessionstart(session=session)
    finally:
        fixtures.FixtureManager = before
    return session


class _FixtureManager(_pytest.fixtures.FixtureManager):
    """Searches of a plugin what has been found to hold fixtures, and conftest files, which pytest keeps until later."""

    def pytest_plugin_registered(self, plugin: object, plugin_name: str) -> None:
        holder = plugin if str(plugin_name).endswith("conftest.py") else search(plugin)
        if holder is not None:
            super().pytest_plugin_registered(holder, plugin_name)


def search(plugin: object) -> object | None:
    """What of `plugin` may hold fixtures; found once in this process and what is forked from it."""
    return fixture_holder(plugin, _pytest.fixtures.FixtureFunctionDefinition)


def collect_file(session: Session, path: str) -> list[pytest.Item]:
    """The items of one file; what could not be collected is told through hooks."""
    return [item for item in session.perform_collect([path]) if isinstance(item, pytest.Item)]


@contextmanager
def conftests_kept(session: Session) -> Iterator[None]:
    """Keep pytest from dropping conftest files that are loaded and whose directories will be collected later."""
    waiting: dict[Path, object] = getattr(session._fixturemanager, "_pending_conftests", {})
    kept = dict(waiting)
    yield
    waiting.update(kept)


def teardown_to(session: Session, nextitem: Any) -> None:
    """Tear down all that `nextitem` does not need."""
    session._setupstate.teardown_exact(nextitem)


def renew_request(item: Any) -> None:
    """Let an item that has run be run again."""
    if hasattr(item, "_request") and not item._request:
        item._initrequest()


def end_request(item: Any) -> None:
    """Let go of what the item's fixtures gave it, as pytest's runner does."""
    if hasattr(item, "_request"):
        item._request = False
        item.funcargs = None


def kept_by_instance(item: Any) -> list[int]:
    """The ids of what the test has left on the instance of its class, which pytest keeps until the session ends."""
    return list(map(id, getattr(vars(item).get("_instance"), "__dict__", {}).values()))


def fixture_names(item: Any) -> tuple[str, ...]:
    """The fixtures that the test function itself names."""
    return tuple(item._fixtureinfo.argnames)


def fixture_definitions(item: Any) -> list[Any]:
    """The definitions of all fixtures that the item sets up."""
    return [found[-1] for found in item._fixtureinfo.name2fixturedefs.values()]


def look_up_only(item: Any) -> None:
    """Let a look-up of a fixture by its name find the definition, and set up nothing.

    Hypothesis's plugin looks up fixtures to check their scopes.
    """
    definitions = item._fixtureinfo.name2fixturedefs
    item._request._get_active_fixturedef = lambda name: definitions[name][-1]


def is_skipped_by_mark(item: pytest.Item) -> bool:
    """Whether a mark of the item skips it; a mark that cannot be evaluated is for the item's setup to report."""
    try:
        return evaluate_skip_marks(item) is not None
    except BaseException:
        return False


def has_values_for(metafunc: Any, name: str) -> bool:
    """Whether a hook that was called earlier gave `name` values."""
    return any(name in call.params for call in metafunc._calls)


def is_unittest_method(item: pytest.Item) -> bool:
    """Whether the item is a method of a class of `unittest.TestCase`."""
    return isinstance(item, TestCaseFunction)


def parametrized_method(item: Any, name: str, value: object, index: int, label: str) -> pytest.Item:
    """An item like `item`, a method of a unittest class, with the `index`-th of several values of parameter `name`."""
    made: Any = getattr(_pytest.python, "CallSpec", None) or getattr(_pytest.python, "CallSpec2")  # noqa: B009
    callspec = made({name: value}, {name: index}, {name: Scope.Function}, (label,))
    return _ParametrizedMethod.from_parent(
        item.parent,
        name=f"{item.name}[{label}]",
        callspec=callspec,
        keywords={label: True},
        originalname=item.name,
    )


class _ParametrizedMethod(TestCaseFunction):
    """Its class knows it by the name that has no parameter in it."""

    def _getinstance(self) -> Any:
        parent: Any = self.parent
        return parent.obj(self.originalname)

    def runtest(self) -> None:
        setattr(self.instance, self.originalname, self.obj)  # unittest calls it by this name, whatever it now is
        super().runtest()


def gives_nothing_away(definition: Any) -> bool:
    """Whether the fixture only hands a parameter over: to pytest, that is a fixture of this name."""
    return getattr(definition.func, "__name__", "") == "get_direct_param_fixture_func"


def forget_sections(item: Any) -> None:
    """Forget what an earlier run of the item has captured."""
    item._report_sections.clear()
    item.user_properties.clear()


def locate(item: pytest.Item, location: tuple[str, int | None, str]) -> None:
    """Let the item know where it is, for which it would look through its file's source."""
    vars(item)["location"] = location  # where its cached property keeps it


def base_temp(config: pytest.Config) -> Path:
    """The directory of this session's temporary files."""
    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    return factory.getbasetemp()


def failed_subtests(item: pytest.Item) -> int:
    """How many subtests of `item` pytest has counted as failed; 0 where it does not count them."""
    counts = _subtest_counts(item)
    return 0 if counts is None else int(counts[_subtest_key(item)])


def count_failed_subtest(item: pytest.Item) -> None:
    """Have pytest fail `item` for a subtest of it that failed."""
    counts = _subtest_counts(item)
    if counts is not None:
        counts[_subtest_key(item)] += 1


def _subtest_counts(item: pytest.Item) -> Any:
    try:
        from _pytest.subtests import failed_subtests_key
    except ImportError:  # before pytest 9
        return None
    return item.config.stash.get(failed_subtests_key, None)


def _subtest_key(item: pytest.Item) -> Any:
    return getattr(item, "id", item.nodeid)  # by name before pytest 9.2


def shows_logs(config: pytest.Config) -> bool:
    """Whether this process shows in its terminal what is logged, as it is logged."""
    plugin: Any = config.pluginmanager.get_plugin("logging-plugin")
    return plugin is not None and bool(plugin._log_cli_enabled())


def tell_log(config: pytest.Config) -> Callable[[int, str], None]:
    """Shows a line that a rank has logged, as if it had been logged here, after the rank's number."""
    plugin: Any = config.pluginmanager.get_plugin("logging-plugin")
    handler = plugin.log_cli_handler
    handler.setFormatter(_Formatted(handler.formatter))

    def tell(rank: int, line: str) -> None:
        record = logging.makeLogRecord({"msg": f"[rank {rank}] {line}", _FORMATTED: True})
        handler.handle(record)

    return tell


def log_to(config: Config, path: Path) -> None:
    """Have all that is logged from now on also in the file, formatted for pytest's live logs and by their level."""
    plugin: Any = config.pluginmanager.get_plugin("logging-plugin")
    handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(plugin.log_cli_handler.formatter)
    root = logging.getLogger()
    root.addHandler(handler)
    if plugin.log_cli_level is not None:
        handler.setLevel(plugin.log_cli_level)
        root.setLevel(min(root.level, plugin.log_cli_level))


def attach_logs_by(catching: Callable[[logging.Handler, int | None], Any]) -> Callable[[], None]:
    """Have `catching(handler, level)` make what pytest enters for each phase of a test; returns a function to undo it.

    Does nothing where pytest attaches its handlers to the root logger alone.
    """
    theirs: Any = _pytest.logging.catching_logs
    if not hasattr(theirs, "attached_loggers"):
        return lambda: None

    def instead(handler: logging.Handler, level: int | None = None) -> Any:
        ours = isinstance(handler, _pytest.logging.LogCaptureHandler)
        return catching(handler, level) if ours else theirs(handler, level=level)

    module: Any = _pytest.logging
    module.catching_logs = instead
    return lambda: setattr(module, "catching_logs", theirs)


_FORMATTED = "rankdrill_formatted"


class _Formatted(logging.Formatter):
    """Leaves alone what was formatted on a rank."""

    def __init__(self, others: logging.Formatter) -> None:
        super().__init__()
        self._others = others

    def format(self, record: logging.LogRecord) -> str:
        return record.getMessage() if hasattr(record, _FORMATTED) else self._others.format(record)
