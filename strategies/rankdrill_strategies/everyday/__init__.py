"""What every job sends sooner or later, ready-made: small tables, each value next to where something ends."""

from rankdrill_strategies.everyday.exceptions import EXCEPTIONS
from rankdrill_strategies.everyday.grouped import DICTS, EMPTY, KEYS, LISTS, SETS, TUPLES
from rankdrill_strategies.everyday.of_numpy import ARRAYS, SCALARS
from rankdrill_strategies.everyday.of_stdlib import STATES, TIMES, VALUES
from rankdrill_strategies.everyday.of_torch import MODULES, TENSORS, TORCH
from rankdrill_strategies.everyday.plain import BYTES, FLOATS, INTS, SINGLES, TEXTS
from rankdrill_strategies.everyday.table import Makers, Table, from_tables
from rankdrill_strategies.everyday.twice import ARRAYS_TWICE, TENSORS_TWICE, TWICE

__all__ = [
    "ARRAYS",
    "ARRAYS_TWICE",
    "BYTES",
    "DICTS",
    "EMPTY",
    "EXCEPTIONS",
    "FLOATS",
    "INTS",
    "KEYS",
    "LISTS",
    "MODULES",
    "SCALARS",
    "SETS",
    "SINGLES",
    "STATES",
    "TENSORS",
    "TENSORS_TWICE",
    "TEXTS",
    "TIMES",
    "TORCH",
    "TUPLES",
    "TWICE",
    "VALUES",
    "Makers",
    "Table",
    "from_tables",
]
