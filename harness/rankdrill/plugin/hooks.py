"""What pytest calls: the marker, the parametrization of world sizes, and the items that run on ranks."""

from __future__ import annotations

import random
import re
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from rankdrill.errors import UsageError
from rankdrill.plugin.foreseen import refuse_unknown
from rankdrill.plugin.marker import MARKER_HELP, SIZE_PARAMETER, own_sizes_depth, read_mark, size_label
from rankdrill.plugin.refusals import check_worlds, refusal, refusals_of_sizes
from rankdrill.strictness import contracts_asked_for

if TYPE_CHECKING:
    from rankdrill.plugin.item import Session

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_collectstart",
    "pytest_configure",
    "pytest_configure_node",
    "pytest_exception_interact",
    "pytest_generate_tests",
    "pytest_itemcollected",
    "pytest_load_initial_conftests",
    "pytest_make_collect_report",
    "pytest_report_header",
    "pytest_runtest_makereport",
    "pytest_runtest_protocol",
    "pytest_runtest_teardown",
    "pytest_runtestloop",
    "pytest_sessionfinish",
    "rank",
    "rank_tmp_path",
    "world_size",
]

_SHARED = pytest.StashKey["Session"]()
_LINKED = pytest.StashKey[bool]()
_SEED = "rankdrill_seed"
_LOOKS_RANKED = re.compile(rb"[.@]ranks\b")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rankdrill", "tests on ranks (rankdrill)")
    group.addoption(
        "--rankdrill-seed",
        type=int,
        metavar="N",
        help="what the random numbers of all ranks come from; by default drawn anew, and printed in the header",
    )
    group.addoption(
        "--rankdrill-fresh",
        action="store_true",
        help="give every test ranks that have run nothing else, as @pytest.mark.ranks(n, fresh=True) does for one",
    )
    group.addoption(
        "--no-contracts",
        action="store_true",
        help="do not compare what ranks do in collectives and messages, as @pytest.mark.ranks(n, contracts=False) "
        "does for one",
    )
    group.addoption(
        "--strict-contracts",
        action="store_true",
        help='fail a test that made a group and never destroyed it, too, as @pytest.mark.ranks(n, contracts="strict") '
        "does for one",
    )
    group.addoption(
        "--rankdrill-json",
        metavar="FILE",
        help="when the session ends, write to FILE as JSON what came of each test on ranks: who is at fault, how each "
        "rank ended and on which line, what was found (docs/json.md has the fields)",
    )
    group.addoption(
        "--rankdrill-html",
        metavar="DIR",
        help="write to DIR a page for each test on ranks that failed: the verdict, steps in time, who waits for whom",
    )
    group.addoption(
        "--pdb-rank",
        type=int,
        metavar="N",
        help="lend this terminal to rank N: breakpoint() opens its prompt there, with --pdb a failure does too; "
        "the deadlines of tests do not run, and contracts are not compared",
    )
    parser.addini(
        "rankdrill_preload",
        type="args",
        default=[],
        help="modules that take long to import, and start no threads: imported once, where ranks are forked from, and "
        "not in each rank",
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest captures what the terminal is
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    rank = early_config.known_args_namespace.pdb_rank
    if rank is not None and not _in_a_rank(early_config):
        from rankdrill.plugin.terminal import lend_terminal

        lend_terminal(early_config, rank)
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER_HELP)
    if not _in_a_rank(config):
        seed = _seed(config)
        refuse_unknown(config.getini("rankdrill_preload"))
        if config.option.rankdrill_json is not None:
            from rankdrill.plugin.json_file import write_json

            write_json(config, seed)
        if config.option.rankdrill_html is not None:
            from rankdrill.plugin.html_pages import write_pages

            write_pages(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist is about to start a worker, which parses the command line anew: what was drawn here it is told."""
    node.workerinput[_SEED] = _seed(node.config)


# Session-scoped, as on the ranks: Hypothesis refuses fixtures that it would have to reset between examples.
@pytest.fixture(scope="session")
def rank() -> Any:
    """This rank of a test marked `ranks`, an int: index, world_size, group, device, store, barrier()."""
    raise UsageError("the fixture 'rank' is for tests marked @pytest.mark.ranks(n); mark this one")


@pytest.fixture
def rank_tmp_path() -> Any:
    """A temporary directory of this test and this rank alone; `tmp_path` is shared by its ranks."""
    raise UsageError("the fixture 'rank_tmp_path' is for tests marked @pytest.mark.ranks(n); mark this one")


@pytest.fixture(scope="session")
def world_size(request: pytest.FixtureRequest) -> int:
    """The number of ranks a test marked `ranks` runs on."""
    if hasattr(request, "param"):
        return int(request.param)
    raise UsageError("the fixture 'world_size' is for tests marked @pytest.mark.ranks(n); mark this one")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    try:
        mark = read_mark(metafunc.definition)
        if mark is not None:
            check_worlds(metafunc.definition, mark)
    except UsageError as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {error}") from None
    if mark is None or mark.drawn_size is not None or _has_own_sizes(metafunc):
        return
    if len(mark.sizes) > 1 or SIZE_PARAMETER in metafunc.fixturenames:
        if SIZE_PARAMETER not in metafunc.fixturenames:
            metafunc.fixturenames.append(SIZE_PARAMETER)
        ids = [size_label(size) for size in mark.sizes] if len(mark.sizes) > 1 else [pytest.HIDDEN_PARAM]
        metafunc.parametrize(SIZE_PARAMETER, mark.sizes, indirect=True, ids=ids, scope="function")


def _has_own_sizes(metafunc: pytest.Metafunc) -> bool:
    from rankdrill.plugin import pytest_seam

    return own_sizes_depth(metafunc.definition) is not None or pytest_seam.has_values_for(metafunc, SIZE_PARAMETER)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Where a file seems to have tests on ranks: its own imports, of torch say, and the template's run side by side.

    Not when its node is made: pytest makes one for every file of a directory of which a single file was asked for.
    """
    if _in_a_rank(collector.config) or not isinstance(collector, pytest.Module):
        return
    if _LOOKS_RANKED.search(collector.path.read_bytes()):
        _start_template(collector.config)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if isinstance(collector, pytest.Class):  # a session has items too, of the ids that were asked for
        report.result = [one for node in report.result or () for one in _for_each_size(node)]
    if not _in_a_rank(collector.config):
        items = [one for one in report.result or () if isinstance(one, pytest.Item)]
        refused = [f"{item.nodeid}: {why}" for item in items if (why := _why_not(item))] or refusals_of_sizes(items)
        if refused:
            report.outcome, report.longrepr, report.result = "failed", "\n".join(refused), []
    return report


def _for_each_size(node: pytest.Item | pytest.Collector) -> list[pytest.Item | pytest.Collector]:
    if not isinstance(node, pytest.Item) or node.get_closest_marker("ranks") is None:
        return [node]
    from rankdrill.plugin.sized_methods import for_each_size

    return [*for_each_size(node)]


def pytest_itemcollected(item: pytest.Item) -> None:
    if not _in_a_rank(item.config) and not _why_not(item):
        _make_ranked(item)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _in_a_rank(config):
        return
    for item in items:  # those that a conftest file has marked only now
        why = _why_not(item)
        if why:
            raise pytest.UsageError(f"{item.nodeid}: {why}")
        _make_ranked(item)


def _why_not(item: pytest.Item) -> str:
    return refusal(item) if item.get_closest_marker("ranks") is not None else ""


def _make_ranked(item: pytest.Item) -> None:
    if item.get_closest_marker("ranks") is None or _is_ranked(item):
        return
    assert isinstance(item, pytest.Function)
    from rankdrill.plugin.ranked import make_ranked

    try:
        mark = read_mark(item)
        assert mark is not None
        make_ranked(item, mark, _shared(item.config))
    except UsageError as error:
        raise pytest.UsageError(f"{item.nodeid}: {error}") from None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    ranked: Any = item
    if _is_ranked(item):
        _link(item.session)
        ranked.ahead = ranked.following if ranked.following is nextitem else None
        ranked.shared.logs.keep()
        ranked.shared.logs.begin_test(only_body=ranked.plain)
        # Outside of the time that pytest-timeout gives the test.
        ranked.prepare()
        from rankdrill.plugin.terminal import without_pdb
        from rankdrill.plugin.unforked import without_forks

        with without_pdb(item.config), without_forks(item.config):
            result = yield
        ranked.tell_of_fresh_ranks()
        return result
    if _SHARED in item.config.stash:
        item.config.stash[_SHARED].logs.close()
    return (yield)


def pytest_exception_interact(node: Any) -> None:
    if _is_ranked(node):
        from rankdrill.plugin.terminal import tell_of_pdb_rank

        tell_of_pdb_rank(node)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    error: BaseException | None = None
    if _is_ranked(item):
        ranked: Any = item
        try:
            ranked.end()
        except BaseException as raised:  # this process's own teardown must go on whatever the ranks' came to
            error = raised
    result = yield
    if error is not None:
        raise error
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _is_ranked(item):
        ranked: Any = item
        # Of a test with nothing to set up, the body too ran while this process was in its setup.
        report.duration = ranked.durations.get(report.when, report.duration)
        if item.config.option.rankdrill_json is not None:
            from rankdrill.plugin.json_file import attach

            attach(ranked, report)
        if item.config.option.rankdrill_html is not None:
            from rankdrill.plugin.html_pages import add_page

            add_page(ranked, report)
    return report


def pytest_report_header(config: pytest.Config) -> str:
    return f"rankdrill: --rankdrill-seed={_seed(config)}"


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:  # inside of what pytest-cov does here: it then has what the ranks measured
        _end_ranks(session)


def pytest_sessionfinish(session: pytest.Session) -> None:
    _end_ranks(session)


def _end_ranks(session: pytest.Session) -> None:
    shared = session.config.stash.get(_SHARED, None)
    if shared is not None:
        shared.logs.close()
        shared.pool.close()


def _in_a_rank(config: pytest.Config) -> bool:
    return config.pluginmanager.has_plugin("rankdrill-rank")


def _is_ranked(item: pytest.Item) -> Any:
    return hasattr(item, "place") and hasattr(item, "shared")


def _link(session: pytest.Session) -> None:
    """Tell each test which is the next of the session in the same world: its ranks keep what the two share."""
    if _LINKED not in session.stash:
        session.stash[_LINKED] = True
        newest: dict[Any, Any] = {}
        for item in filter(_is_ranked, reversed(session.items)):
            ranked: Any = item
            ranked.following = newest.get(ranked.key)
            newest[ranked.key] = ranked


def _seed(config: pytest.Config) -> int:
    """What ranks' random numbers come from: the option, or pytest-randomly's seed, or drawn once for the session."""
    if config.option.rankdrill_seed is None:
        theirs = getattr(config, "workerinput", {}).get(_SEED, getattr(config.option, "randomly_seed", None))
        config.option.rankdrill_seed = theirs if isinstance(theirs, int) else random.SystemRandom().randrange(1 << 32)
    return int(config.option.rankdrill_seed)


def _start_template(config: pytest.Config) -> None:
    """Have it import torch while this process goes on collecting."""
    if not config.getoption("collectonly"):
        from rankdrill.plugin.early_start import start_early

        start_early(config)


def _shared(config: pytest.Config) -> Session:
    if _SHARED not in config.stash:
        from rankdrill.plugin import pytest_seam
        from rankdrill.plugin.ahead import Ahead
        from rankdrill.plugin.item import Session
        from rankdrill.plugin.lasting_logs import LastingLogs
        from rankdrill.plugin.pool import WorldPool
        from rankdrill.plugin.session_setup import session_setup

        stream = config.getoption("capture") == "no"
        wanted = session_setup(config)
        tell_log = pytest_seam.tell_log(config) if wanted.live_log else None
        pool = WorldPool(wanted, stream, tell_log, preload=tuple(config.getini("rankdrill_preload")))
        # Somebody at a prompt is not to be ended because the others can only wait.
        asked = contracts_asked_for(without=config.option.no_contracts, strictly=config.option.strict_contracts)
        pool.contracts = config.option.pdb_rank is None and asked
        told = stream or wanted.live_log  # at once: not before the end of the test before
        asks = config.option.usepdb or config.option.pdb_rank is not None
        ahead = Ahead(possible=not (told or asks or config.option.rankdrill_fresh))
        config.stash[_SHARED] = Session(
            pool,
            LastingLogs(),
            ahead,
            _seed(config),
            fresh=bool(config.option.rankdrill_fresh),
            tells=config.option.rankdrill_json is not None or config.option.rankdrill_html is not None,
            pdb_rank=config.option.pdb_rank,
        )
        if config.option.pdb_rank is not None:
            config.hook.pytest_enter_pdb(config=config, pdb=None)  # has pytest-timeout set no alarm
        _start_template(config)
    return config.stash[_SHARED]
