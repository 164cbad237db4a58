"""Which samples a gather is asked to carry: those of what it takes, within the bound that it has."""

from __future__ import annotations

import pickle

from rankdrill.conformance.adapter import UNBOUNDED, Adapter
from rankdrill.conformance.gives import GIVES
from rankdrill.conformance.kit.samples.metrics import NUMBERS, NUMBERS_BY_NAME, SCALARS_BY_NAME
from rankdrill.conformance.kit.samples.objects import DICTS, LISTS, MUTABLE, MUTABLE_ITEMS, OBJECTS
from rankdrill.conformance.kit.samples.sample import Sample
from rankdrill.conformance.kit.samples.states import STATES
from rankdrill.conformance.kit.samples.tensors import EQUAL, RAGGED, ROWS, TENSORS, WHOLE

__all__ = ["SAMPLES", "fitting", "least_of", "mutable_of", "samples_of"]

_MEASURED = (2, 4)  # ranks, of whose payloads it is seen whether they are within a bound
_PICKLED = 64  # bytes, at most, that a pickle has besides
SAMPLES: dict[str, tuple[Sample, ...]] = {
    "objects": OBJECTS,
    "functions": OBJECTS,
    "dicts": DICTS,
    "lists": LISTS,
    "tensors": TENSORS,
    "ragged tensors": RAGGED,
    "tensors of rows": ROWS,
    "equal tensors": EQUAL,
    "dicts of tensors": STATES,
    "dicts of scalars": SCALARS_BY_NAME,
    "dicts of numbers": NUMBERS_BY_NAME,
    "numbers": NUMBERS,
}
"""By what a gather takes."""

_MUTABLE = {"objects": MUTABLE, "functions": MUTABLE, "dicts": MUTABLE, "lists": MUTABLE_ITEMS}


def samples_of(adapter: Adapter) -> tuple[Sample, ...]:
    """What `adapter` is asked to carry, within the bound that it has; the first is the plain one."""
    if not isinstance(adapter.takes, str):
        return tuple(Sample(name, payload.make) for name, payload in adapter.takes.items())
    # Whether the mean of whole numbers is one is open.
    means = adapter.receives in (GIVES["mean"], GIVES["mean at dst"])
    found = [sample for sample in SAMPLES[adapter.takes] if not (means and sample is WHOLE)]
    return tuple(sample for sample in found if _fits(sample, adapter))


def mutable_of(adapter: Adapter) -> Sample:
    """What has parts that can be changed in place."""
    made = _MUTABLE.get(str(adapter.takes), ())
    return next((sample for sample in made if _fits(sample, adapter)), samples_of(adapter)[0])


def fitting(count: int, adapter: Adapter) -> bool:
    """Whether `count` bytes, pickled, are within the bound that the gather has."""
    return count + _PICKLED <= adapter.room


def least_of(adapter: Adapter) -> int:
    """The bytes of the plain sample, pickled, on the rank where it has most; 0 where there is no bound."""
    return 0 if adapter.room == UNBOUNDED else _pickled(SAMPLES[str(adapter.takes)][0], adapter)


def _fits(sample: Sample, adapter: Adapter) -> bool:
    return fitting(sample.least, adapter) and (adapter.room == UNBOUNDED or _pickled(sample, adapter) <= adapter.room)


def _pickled(sample: Sample, adapter: Adapter) -> int:
    """The most bytes that a rank has of `sample`, pickled; 0 where it cannot be."""
    payloads = ((rank, size, turn) for size in _MEASURED for rank in range(size) for turn in range(size))
    try:
        return max(len(pickle.dumps(adapter.dressed(sample.make(*which), *which))) for which in payloads)
    except (pickle.PicklingError, TypeError, AttributeError):  # what a gather takes need not pickle
        return 0
