"""Private names of pytest and Hypothesis that the plugin uses: when a release changes one, this says which."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

USED = [
    ("_pytest.config", "get_config", ("args",)),
    ("_pytest.config", "Config.parse", ("args", "addopts")),
    ("_pytest.config", "Config._do_configure", ("self",)),
    ("_pytest.config", "Config._ensure_unconfigure", ("self",)),
    ("_pytest.config", "Config.InvocationParams", ("args", "plugins", "dir")),
    ("_pytest.fixtures", "FixtureManager", ("session",)),
    ("_pytest.fixtures", "FixtureManager.pytest_plugin_registered", ("self", "plugin", "plugin_name")),
    ("_pytest.main", "Session.from_config", ("config",)),
    ("_pytest.main", "Session.perform_collect", ("self", "args")),
    ("_pytest.runner", "SetupState.teardown_exact", ("self", "nextitem")),
    ("_pytest.skipping", "evaluate_skip_marks", ("item",)),
    ("_pytest.nodes", "Node._repr_failure_py", ("self", "excinfo", "style")),
    ("_pytest.python", "Function._initrequest", ("self",)),
    ("_pytest.unittest", "TestCaseFunction._getinstance", ("self",)),
    ("_pytest.fixtures", "FixtureRequest._get_active_fixturedef", ("self", "argname")),
    ("_pytest._code.code", "TerminalRepr.toterminal", ("self", "tw")),
    ("_pytest._code.code", "ReprFileLocation", ("path", "lineno", "message")),
    ("hypothesis.control", "BuildContext", ("data", "is_final")),
    ("hypothesis.internal.conjecture.data", "ConjectureData.for_choices", ("choices",)),
]


@pytest.mark.parametrize(("module", "name", "parameters"), USED, ids=[f"{module}.{name}" for module, name, _ in USED])
def test_what_the_plugin_uses_is_still_there(module: str, name: str, parameters: tuple[str, ...]) -> None:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        assert hasattr(found, part), f"{module} has no {name} any more; see plugin/pytest_seam.py"
        found = getattr(found, part)
    known = inspect.signature(found).parameters
    for parameter in parameters:
        assert parameter in known, f"{module}.{name} takes no {parameter!r} any more; see plugin/pytest_seam.py"


def test_what_is_set_on_hypothesis_is_still_read() -> None:
    core = importlib.import_module("hypothesis.core")
    assert core.global_force_seed is None or isinstance(core.global_force_seed, int)
    assert "global_force_seed" in inspect.getsource(core.get_random_for_wrapped_test)
    assert list(inspect.signature(core.StateForActualGivenExecution._should_trace).parameters) == ["self"]
    shrinker = importlib.import_module("hypothesis.internal.conjecture.shrinker").Shrinker
    assert list(inspect.signature(shrinker.explain).parameters) == ["self"]
    assert "_given_kwargs" in inspect.signature(core.HypothesisHandle).parameters
    data = importlib.import_module("hypothesis.internal.conjecture.data").ConjectureData.for_choices(())
    assert (data.max_choices, data.events, data.target_observations) == (0, {}, {})


def test_items_still_carry_what_is_set_on_them(request: pytest.FixtureRequest) -> None:
    node = request.node
    for name in (
        "_fixtureinfo",
        "_request",
        "_report_sections",
        "user_properties",
        "funcargs",
        "instance",
        "_instance",
    ):
        assert hasattr(node, name), f"pytest's Function has no {name} any more; see plugin/pytest_seam.py"
    assert hasattr(node._fixtureinfo, "name2fixturedefs")
    assert hasattr(request.config, "_tmp_path_factory")
    assert hasattr(request.config._parser, "_inidict")
    assert hasattr(request.session, "_setupstate")
    assert hasattr(request.session, "_fixturemanager")


def test_a_method_is_still_parametrized_by_what_pytest_plans_for_it() -> None:
    python = importlib.import_module("_pytest.python")
    planned = python.CallSpec if hasattr(python, "CallSpec") else python.CallSpec2
    assert list(inspect.signature(planned).parameters)[:4] == ["params", "indices", "_arg2scope", "_idlist"]


def test_conftest_files_still_wait_for_their_directories(request: pytest.FixtureRequest) -> None:
    release = tuple(int(part) for part in pytest.__version__.split(".")[:2])
    if release < (9, 1):
        pytest.skip("before pytest 9.1 fixtures belong to paths")
    assert isinstance(request.session._fixturemanager._pending_conftests, dict)


@pytest.mark.skipif(int(pytest.__version__.partition(".")[0]) < 9, reason="pytest 8 has no subtests")
def test_failed_subtests_are_still_counted(request: pytest.FixtureRequest) -> None:
    subtests = importlib.import_module("_pytest.subtests")
    assert hasattr(subtests, "failed_subtests_key")
    assert isinstance(request.config.stash[subtests.failed_subtests_key], dict)


def test_live_logs_are_still_made_by_the_same_plugin(request: pytest.FixtureRequest) -> None:
    plugin = request.config.pluginmanager.get_plugin("logging-plugin")
    for name in ("_log_cli_enabled", "log_cli_handler", "log_cli_level"):
        assert hasattr(plugin, name), f"pytest's logging plugin has no {name} any more; see plugin/pytest_seam.py"
