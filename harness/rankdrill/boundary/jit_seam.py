"""TorchScript knows torch's functions by identity; one that replaces another must be known for the same operator.

Private to torch: ``torch.jit._builtins._get_builtin_table``, a table from ``id(function)`` to the operator's name.
"""

from __future__ import annotations

import weakref
from typing import Any

__all__ = ["known_to_torchscript"]


def known_to_torchscript(replacement: Any, original: Any) -> None:
    """Let TorchScript compile calls of `replacement` as it does those of `original`."""
    from torch.jit import _builtins

    table = _builtins._get_builtin_table()  # type: ignore[no-untyped-call]
    if id(original) in table:
        table[id(replacement)] = table[id(original)]
        # Another object may have this id one day.
        weakref.finalize(replacement, table.pop, id(replacement), None)
