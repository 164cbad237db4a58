"""What pytest calls: the marker, the parametrization of world sizes, and the items that run on ranks."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from rankdrill.errors import UsageError
from rankdrill.plugin.marker import MARKER_HELP, RanksMark, read_mark

if TYPE_CHECKING:
    from rankdrill.plugin.item import RankedItem
    from rankdrill.plugin.phase import SessionSetup
    from rankdrill.plugin.pool import WorldPool

__all__ = [
    "pytest_configure",
    "pytest_generate_tests",
    "pytest_itemcollected",
    "pytest_runtest_teardown",
    "pytest_sessionfinish",
    "rank",
    "rank_tmp_path",
    "world_size",
]

_POOL = pytest.StashKey["WorldPool"]()
_SETUP = pytest.StashKey["SessionSetup"]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER_HELP)


# Session-scoped, as on the ranks: Hypothesis refuses fixtures that it would have to reset between examples.
@pytest.fixture(scope="session")
def rank() -> Any:
    """This rank of a test marked `ranks`: index, world_size, group, device, store, barrier()."""
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
        if mark is not None and not _may_be_skipped(metafunc.definition):
            _check_worlds(mark)
    except UsageError as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {error}") from None
    if mark is None:
        return
    if len(mark.sizes) > 1 or "world_size" in metafunc.fixturenames:
        if "world_size" not in metafunc.fixturenames:
            metafunc.fixturenames.append("world_size")
        ids = [f"{size}ranks" for size in mark.sizes] if len(mark.sizes) > 1 else [pytest.HIDDEN_PARAM]
        metafunc.parametrize("world_size", mark.sizes, indirect=True, ids=ids, scope="function")


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.get_closest_marker("ranks") is None or _in_a_rank(item.config):
        return
    if not isinstance(item, pytest.Function):
        raise pytest.Collector.CollectError(f"{item.nodeid}: @pytest.mark.ranks is for test functions and methods")
    mark = read_mark(item)
    assert mark is not None
    from rankdrill.plugin.item import make_ranked

    make_ranked(item, mark, _pool(item.config), _setup(item.config))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    error: BaseException | None = None
    if _is_ranked(item):
        ranked: Any = item
        try:
            ranked.end(_following(ranked))
        except BaseException as raised:  # this process's own teardown must go on whatever the ranks' came to
            error = raised
    result = yield
    if error is not None:
        raise error
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    pool = session.config.stash.get(_POOL, None)
    if pool is not None:
        pool.close()


def _may_be_skipped(node: pytest.Item) -> bool:
    # `skipif(no GPUs)` is how a test says that it does not run everywhere.
    return any(node.iter_markers("skip")) or any(node.iter_markers("skipif"))


def _check_worlds(mark: RanksMark) -> None:
    from rankdrill.worlds import check_world

    for size in mark.sizes:
        check_world(size, engine=mark.engine, backend=mark.backend, device=mark.device)


def _in_a_rank(config: pytest.Config) -> bool:
    return config.pluginmanager.has_plugin("rankdrill-rank")


def _is_ranked(item: pytest.Item) -> Any:
    return hasattr(item, "place") and hasattr(item, "pool")


def _following(item: Any) -> RankedItem | None:
    """The next test of the session in the same world: its ranks keep what the two share."""
    items: Iterator[Any] = iter(item.session.items)
    for other in items:
        if other is item:
            break
    return next((other for other in items if _is_ranked(other) and other.key == item.key), None)


def _pool(config: pytest.Config) -> WorldPool:
    if _POOL not in config.stash:
        from rankdrill.plugin.pool import WorldPool
        from rankdrill.plugin.session_setup import modules_to_preload
        from rankdrill.worlds import start_template

        stream = config.getoption("capture") == "no"
        config.stash[_POOL] = WorldPool(stream=stream, preload=modules_to_preload(config))
        if not config.getoption("collectonly"):
            start_template()  # it imports torch while this process goes on collecting
    return config.stash[_POOL]


def _setup(config: pytest.Config) -> SessionSetup:
    if _SETUP not in config.stash:
        from rankdrill.plugin.session_setup import session_setup

        config.stash[_SETUP] = session_setup(config)
    return config.stash[_SETUP]
