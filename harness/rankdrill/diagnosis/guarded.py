"""A diagnosis that fails costs the run its explanation, and no more: who hung or died is told all the same."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from rankdrill.diagnosis.finding import Finding
from rankdrill.errors import DiagnosisFailed, describe

__all__ = ["or_else"]


def or_else(known: Finding | None, find: Callable[[], Finding | None]) -> Finding | None:
    """What `find` finds; `known`, and a warning, where it fails. What it reads is whatever ranks did and wrote."""
    try:
        return find()
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{describe(error)}, in {last.name} at {Path(last.filename).name}:{last.lineno}"
        warnings.warn(
            f"rankdrill failed to find out what is wrong with this run, and tells what it knows without: {told}. That"
            " is a defect of rankdrill; please report it with the body of the test.",
            DiagnosisFailed,
            stacklevel=2,
        )
        return known
