"""``python -m rankdrill.record train.py args…``: a script, or with ``-m`` a module, recorded with no line changed.

Under a launcher it stands where the script stood: ``torchrun --nproc-per-node 4 -m rankdrill.record train.py args…``.
Who imports it gets `rankdrill.record`, the function of that name.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from rankdrill.recording.command import main

__all__ = ["main"]


class _Called(ModuleType):
    """This module, which stands where the function is looked for once it has been imported."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from rankdrill.recording import record

        return record(*args, **kwargs)


if __name__ == "__main__":
    main()
else:
    sys.modules[__name__].__class__ = _Called
