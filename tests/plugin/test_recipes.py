"""The code of docs/hypothesis.md runs as it is printed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plugin.conftest import Ran

PAGE = Path(__file__).parents[2] / "docs" / "hypothesis.md"
FOUND_ABOVE = """
import torch
import rankdrill
import rankdrill.errors
import rankdrill.gathers
from hypothesis import given, settings, strategies as st

settings.register_profile("few", deadline=None, max_examples=5, database=None, derandomize=True)
settings.load_profile("few")

def body():
    dist.all_reduce(torch.ones(1))
"""


@pytest.mark.nightly
def test_what_is_printed_runs(run: Callable[..., Ran]) -> None:
    printed = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    ran = run("\n".join([FOUND_ABOVE, *printed]), subprocess=True)  # a profile would stay
    ran.result.assert_outcomes(passed=sum(code.count("def test_") for code in printed))
    assert len(printed) >= 3
