"""Which options of the controller's session the ranks' sessions take over, and which would do harm there."""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from rankdrill.plugin import pytest_seam
from rankdrill.plugin.commands import Foundation, SessionSetup, Worker
from rankdrill.plugin.measured import measured
from rankdrill.plugin.terminal import lent
from rankdrill.worlds.call import NamedCall

__all__ = ["laying", "session_setup"]

# The controller has selected, reports, stops, debugs and distributes; a rank runs what it is told.
_NOT_IN_A_RANK: dict[str, Any] = {
    "keyword": "",
    "markexpr": "",
    "deselect": None,
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "stepwise": False,
    "cacheclear": False,
    "maxfail": 0,
    "usepdb": False,
    "trace": False,
    "capture": "no",  # what a rank prints goes to a file, so that it is there however the rank ends
    "collectonly": False,
    "setuponly": False,
    "setupplan": False,
    "setupshow": False,
    "xmlpath": None,
    "rankdrill_json": None,
    "rankdrill_html": None,
    "pastebin": None,
    "json_report": False,  # of pytest-json-report: on ranks its hooks would find no report to add to
    "allure_report_dir": None,  # of allure-pytest, which would have a result of each rank for a retry
    "clean_alluredir": False,
    "log_file": None,
    "dist": "no",
    "numprocesses": None,
    "tx": [],
    "distload": False,
    "maxprocesses": None,
    "looponfail": False,
    "forked": False,
    "timeout": 0,
    "session_timeout": None,
    "cov_source": None,
    "no_cov": True,
    "benchmark_save": None,
    "benchmark_autosave": False,
    "benchmark_json": None,
    "benchmark_compare": None,
    "benchmark_histogram": None,
    "help": False,
    "version": 0,
    "traceconfig": False,
}
# Plugins that distribute, report, time or select, which is the controller's part; Hypothesis's engine runs there too.
_NOT_FOR_RANKS = frozenset(
    {
        "xdist",
        "xdist.looponfail",
        "timeout",
        "randomly",
        "hypothesispytest",
        "rerunfailures",
        "html",
        "pytest_forked",
        # Reporters: each takes the place of pytest's own, which a rank has none of.
        "instafail",
        "pretty",
        "rich",
        "sugar",
    }
)

# What reports, and what remembers which tests failed: the controller's, and one file for all ranks to write to.
_BLOCKED = ("no:terminal", "no:lfplugin", "no:nfplugin", "no:stepwiseplugin")


def session_setup(config: pytest.Config) -> SessionSetup:
    """What a rank's session is made from."""
    options = {**vars(config.option), **_NOT_IN_A_RANK}
    options.pop("file_or_dir", None)
    options = {name: value for name, value in options.items() if _travels(value)}
    args = [f"--rootdir={config.rootpath}"]
    given = [name for name in options.pop("plugins", None) or () if name.removeprefix("no:") not in _NOT_FOR_RANKS]
    given += _BLOCKED
    for name in given:
        args += ["-p", name]
    if config.inipath is not None:
        args.append(f"--config-file={config.inipath}")
    confcutdir = config.getoption("confcutdir", None)
    if confcutdir:
        args.append(f"--confcutdir={confcutdir}")
    # Conftest files that lie beside what was asked for are there from the start, for hooks like pytest_sessionstart.
    if not config.getoption("pyargs", False):
        args += [path for arg in config.args if os.path.exists(path := arg.partition("::")[0])]
    ini, aliases = pytest_seam.ini_options(config)
    ini = {name: option for name, option in ini.items() if _travels(option)}
    return SessionSetup(
        options,
        tuple(args),
        _foundation(config, given),
        ini,
        aliases,
        tuple(config.getini("markers")),
        measured(config),
        pytest_seam.shows_logs(config),
        lent(config),
        bool(config.getoption("usepdb")),
        _worker(config),
    )


def _worker(config: pytest.Config) -> Worker | None:
    if not config.pluginmanager.has_plugin("xdist"):
        return None
    told = getattr(config, "workerinput", None) or {"workerid": "master", "testrunuid": uuid.uuid4().hex}
    return Worker(told["workerid"], told["testrunuid"])


def laying(foundation: Foundation) -> NamedCall:
    """What the template does once, so that no rank needs to."""
    return NamedCall("rankdrill.plugin.on_rank.foundation", "lay", (foundation.blocked, foundation.plugins))


def _foundation(config: pytest.Config, names: Sequence[str]) -> Foundation:
    """`names` are those given with ``-p``."""
    blocked = tuple(name.removeprefix("no:") for name in names if name.startswith("no:"))
    return Foundation(blocked, tuple(_entry_points(config)))


def _entry_points(config: pytest.Config) -> list[tuple[str, str]]:
    """Name and module of each installed plugin that this session has loaded and a rank is to have."""
    found = []
    for plugin, distribution in config.pluginmanager.list_plugin_distinfo():
        for entry in distribution.entry_points:
            known = entry.group == "pytest11" and config.pluginmanager.get_plugin(entry.name) is plugin
            if known and entry.name not in _NOT_FOR_RANKS:
                found.append((entry.name, entry.module))
    return found


def _travels(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True
