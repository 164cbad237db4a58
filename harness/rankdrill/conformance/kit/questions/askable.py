"""Whether what a gather is told to give can be had of what it is told to take: told before anything is asked."""

from __future__ import annotations

from dataclasses import replace

from rankdrill.conformance.adapter import Adapter
from rankdrill.conformance.kit.samples.chosen import SAMPLES, least_of, samples_of
from rankdrill.errors import UsageError

__all__ = ["refuse_what_cannot_be_asked"]

_SIZE = 2
_OF_ANYTHING = ("list", "dict", "dst", "dict at dst")


def refuse_what_cannot_be_asked(adapter: Adapter, gives: object) -> None:
    """Raise `UsageError` where `gives` has nothing that would be right for some payload, or the plainest is beyond
    the bound, with what to say instead."""
    if isinstance(adapter.takes, str) and (least := least_of(adapter)) > adapter.room:
        raise UsageError(
            f"room={adapter.room} is too little for takes={adapter.takes!r}, of which the plainest payload has {least} "
            "bytes; say takes={…} with payloads of your own"
        )
    if not isinstance(gives, str) or gives in _OF_ANYTHING or (wrong := _what_is_wrong(adapter)) is None:
        return
    name, error = wrong
    about = f"gives={gives!r} has nothing that would be right for {name!r}: {error}"
    if not isinstance(adapter.takes, str):
        raise UsageError(f"{about}; leave it out of takes, or say what is right by a function, in gives")
    if not isinstance(error, TypeError | ValueError | RuntimeError):
        raise UsageError(f"{about}; see dress")
    fitting = [repr(takes) for takes in SAMPLES if _what_is_wrong(replace(adapter, takes=takes)) is None]
    raise UsageError(
        f"{about}; say takes={' or '.join(fitting)}, or have dress make such of what takes={adapter.takes!r} has"
    )


def _what_is_wrong(adapter: Adapter) -> tuple[str, Exception] | None:
    """The first payload of which nothing is right, and why."""
    for sample in samples_of(adapter):
        try:
            payloads = [adapter.dressed(sample.make(rank, _SIZE, 0), rank, _SIZE, 0) for rank in range(_SIZE)]
            adapter.receives(0, payloads)
        except Exception as error:
            return sample.name, error
    return None
