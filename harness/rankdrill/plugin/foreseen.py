"""What ranks will import while tests run, foreseen from the sources: once in the template, not in each of them.

Torch imports its compiler, eight hundred modules and two seconds of CPU, when the first optimizer or
`DistributedDataParallel` is made. In each rank that would come out of the test's deadline.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest

from rankdrill.whose import Whose, whose_file

__all__ = ["foreseen_imports", "refuse_unknown"]

_COMPILER = "torch._dynamo"
_LEADS_TO_COMPILER = re.compile(
    rb"\boptim\b|\bDistributedDataParallel\b|\bFullyShardedDataParallel\b|\bfully_shard\b|torch\.compile\b"
)
MOST_BYTES = 1 << 20  # of one source: longer ones are data
MOST_SOURCES = 2000


def foreseen_imports() -> tuple[str, ...]:
    """Modules that code of the user's which this process has imported leads to."""
    found = any(_LEADS_TO_COMPILER.search(source) for source in islice(_sources(), MOST_SOURCES))
    return (_COMPILER,) if found else ()


def refuse_unknown(names: Sequence[str]) -> None:
    """Raise `pytest.UsageError` where one of the modules `names`, which the user wants imported, is of no package."""
    for name in names:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            raise pytest.UsageError(
                f"rankdrill_preload = {name}: there is no module of that name here; name those that ranks import, as "
                "in 'megatron.core deepspeed', each installed beside rankdrill"
            )


def _sources() -> Iterator[bytes]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or whose_file(file) is not Whose.USER:
            continue
        try:
            path = Path(file)
            source = path.read_bytes() if path.stat().st_size <= MOST_BYTES else b""
        except OSError:  # gone, or of no such place
            continue
        yield source
