"""Coverage of what ranks run: what they are told to measure, and how it becomes the controller's own."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from rankdrill.plugin import pytest_seam
from rankdrill.plugin.commands import Measured

__all__ = ["measured", "take_in"]


def measured(config: pytest.Config) -> Measured | None:
    """What ranks are to measure; None where this process measures nothing, be it with pytest-cov or without."""
    running = _running()
    if running is None:
        return None
    directory = pytest_seam.base_temp(config) / f"coverage-of-ranks-{secrets.token_hex(4)}"
    directory.mkdir(mode=0o700)
    source, packages = (running.get_option(f"run:{name}") for name in ("source", "source_pkgs"))
    return Measured(
        str(directory),
        str(config.invocation_params.dir),
        running.config.config_file,
        None if source is None else tuple(source),
        tuple(packages or ()),
        bool(running.get_option("run:branch")),
        config.getoption("cov_context", None) == "test",
    )


def take_in(wanted: Measured) -> None:
    """Add what ranks have measured to what this process has, which whoever started that reports."""
    from coverage import CoverageData
    from coverage.exceptions import CoverageException

    running = _running()
    files = sorted(Path(wanted.directory).glob("*"))
    if running is None or not files:
        return
    mine = running.get_data()
    for file in files:
        data = CoverageData(basename=os.fspath(file))
        try:
            mine.update(data)
        except CoverageException as error:  # its rank was killed while it wrote
            warnings.warn(f"what {file.name} had measured is lost: {error}", pytest.PytestWarning, stacklevel=1)
        finally:
            data.close(force=True)
    # Of files with the same hash coverage combines one alone, and leaves out of the hash what `update` has brought:
    # two workers of pytest-xdist whose ranks did different things would seem to have measured the same.
    mine.set_context(wanted.directory)
    mine.set_context(None)
    running.switch_context(None)
    shutil.rmtree(wanted.directory, ignore_errors=True)


def _running() -> Any:
    if "coverage" not in sys.modules:  # then nobody has started it
        return None
    from coverage import Coverage

    return Coverage.current()
