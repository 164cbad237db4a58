"""The end of a rank's session: what is the user's happens on every rank, what an installed plugin does on rank 0 alone.

Plugins write then: snapshots into the user's source, say, or a report. Ranks that all do so at once leave half of each.
"""

from __future__ import annotations

from typing import Any

from rankdrill.plugin import pytest_seam
from rankdrill.whose import Whose, whose_file

__all__ = ["end_session"]


def end_session(config: pytest_seam.Config, session: pytest_seam.Session, rank: int) -> None:
    """Have plugins and conftest files do what they do after a session."""
    hook: Any = config.hook.pytest_sessionfinish
    others = [impl.plugin for impl in hook.get_hookimpls() if rank and _is_installed(impl.function)]
    config.pluginmanager.subset_hook_caller("pytest_sessionfinish", others)(session=session, exitstatus=0)
    pytest_seam.unconfigure(config)


def _is_installed(function: Any) -> bool:
    """Whether it belongs to a plugin that is neither pytest's, nor rankdrill's, nor the user's own."""
    code = getattr(function, "__code__", None)
    file = code.co_filename if code is not None else ""
    return whose_file(file) is Whose.LIBRARY and not str(function.__module__).startswith("_pytest.")
