"""What all ranks' sessions have in common, laid once in the template: pytest's plugins, and those that are installed.

To register them takes longer than all else that a rank does before its first test.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from contextlib import suppress

from rankdrill.plugin import pytest_seam
from rankdrill.plugin.commands import Foundation

__all__ = ["laid", "lay"]

_laid: dict[Foundation, pytest_seam.Config] = {}


def lay(blocked: Sequence[str], plugins: Sequence[tuple[str, str]]) -> None:
    """In the template: begin the configuration of the ranks that it will fork. The arguments are a `Foundation`'s."""
    foundation = Foundation(tuple(blocked), tuple((name, module) for name, module in plugins))
    _laid[foundation] = _begun(foundation)


def laid(foundation: Foundation) -> pytest_seam.Config:
    """In a rank, once: the configuration that the template has begun; where it has not, another."""
    return _laid.pop(foundation, None) or _begun(foundation)


def _begun(foundation: Foundation) -> pytest_seam.Config:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what there is to say about plugins, the controller's own session says
        plugins = [(name, importlib.import_module(module)) for name, module in foundation.plugins]
        config = pytest_seam.begin_config(foundation.blocked, plugins)
        with suppress(ImportError):
            import readline  # noqa: F401 (each session does, for fear of what it does to streams)
        for plugin in config.pluginmanager.get_plugins():
            pytest_seam.search(plugin)
        return config
