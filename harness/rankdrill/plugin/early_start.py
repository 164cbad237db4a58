"""The template is started while tests are collected; what is in its way is no matter of tests without ranks."""

from __future__ import annotations

import contextlib
import warnings

import pytest

from rankdrill.errors import RankdrillError
from rankdrill.worlds import start_template

__all__ = ["start_early"]


def start_early(config: pytest.Config) -> None:
    """Start the template of this process if there is none. Never raises: a test on ranks tries again, and says why."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with contextlib.suppress(RankdrillError, OSError):
            start_template()
    for warning in told:
        # Straight to the summary: where filters make errors of warnings, it would end the whole session.
        kept = {"warning_message": warning, "nodeid": "", "when": "collect", "location": None}
        config.hook.pytest_warning_recorded.call_historic(kwargs=kept)
