"""Methods of `unittest.TestCase` that are marked with several world sizes: one item for each.

pytest parametrizes functions and methods of plain classes alone. Of these it makes one item, which several replace.
"""

from __future__ import annotations

import pytest

from rankdrill.errors import UsageError
from rankdrill.plugin import pytest_seam
from rankdrill.plugin.marker import SIZE_PARAMETER, read_mark, size_label

__all__ = ["for_each_size"]


def for_each_size(item: pytest.Item) -> list[pytest.Item]:
    """`item`, or one like it for each size that it is marked with if it is a unittest method of several."""
    if not pytest_seam.is_unittest_method(item):
        return [item]
    try:
        mark = read_mark(item)
    except UsageError:  # whoever looks whether the item can run says so
        return [item]
    if mark is None or len(mark.sizes) < 2:
        return [item]
    return [
        pytest_seam.parametrized_method(item, SIZE_PARAMETER, size, index, size_label(size))
        for index, size in enumerate(mark.sizes)
    ]
