"""Anything that can be pickled."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from rankdrill_strategies.anything import of_anything
from rankdrill_strategies.arguments import check_count, check_flag
from rankdrill_strategies.arrays import arrays as draw_arrays
from rankdrill_strategies.atoms import atoms, hashables
from rankdrill_strategies.big import big_payloads, edges
from rankdrill_strategies.bundles import bundles, ready_made
from rankdrill_strategies.containers import containers, shared
from rankdrill_strategies.everyday import from_tables
from rankdrill_strategies.everyday.deep import DEEP
from rankdrill_strategies.groups import from_groups
from rankdrill_strategies.knots import knots
from rankdrill_strategies.tensors import tensors as draw_tensors
from rankdrill_strategies.writing import pasteable

__all__ = ["picklables"]


def picklables(
    *,
    max_leaves: int = 16,
    tensors: bool = True,
    arrays: bool = True,
    recursive: bool = True,
    sharing: bool = True,
    big: bool = False,
    newer_dtypes: bool = False,
) -> st.SearchStrategy[Any]:
    """Objects that pickle (protocol 5) and cloudpickle carry, of every kind that a rank may want to send.

    Most are put together of ready-made values of every day, each next to where something ends (see
    docs/hypothesis.md). The others are drawn part by part: nested containers, numbers of every kind with NaN and
    -0.0, text with surrogates, dataclasses, enums, objects with their own `__reduce__` or `__getstate__`, classes and
    functions by reference, tensors and arrays of every dtype and layout; with `sharing`, one object in two places;
    with `recursive`, structures that contain themselves. Some pickle to a power of two bytes, exactly or nearly.
    Classes come from `rankdrill_strategies.specimens`, so any process can unpickle them. `max_leaves` bounds the
    number of parts, a ready-made one counting as one; `big` adds payloads of up to 1 MiB, see `big_payloads`;
    `newer_dtypes` adds tensors that torch pickles but cannot load, see `tensors`. Every example is made anew: a test
    may mutate it. Hypothesis prints it as the Python that makes its like. Shrinks towards None.

        @given(picklables())
        def test_my_gather_keeps_everything(payload):
            assert same(payload, my_gather(payload))
    """
    check_count("max_leaves", max_leaves, at_least=1)
    switches = {"recursive": recursive, "sharing": sharing, "big": big, "newer_dtypes": newer_dtypes}
    for name, value in switches.items():
        check_flag(name, value)
    drawn = [atoms(), atoms()]
    drawn += [draw_tensors(newer_dtypes=newer_dtypes)] if check_flag("tensors", tensors) else []
    drawn += [draw_arrays()] if check_flag("arrays", arrays) else []
    ready = ready_made(tensors=tensors, arrays=arrays, sharing=sharing)
    leaves = from_groups(from_tables(ready), from_groups(*drawn))
    keys = hashables()

    def around(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        plain = containers(parts, keys)
        groups = [plain, plain, plain]
        groups += [shared(parts)] if sharing else []
        groups += [knots(parts)] if recursive else []
        return from_groups(*groups)

    parts = st.recursive(leaves, around, max_leaves=max_leaves)
    others = [*[parts] * 3, *[edges()] * 2, from_tables(DEEP)]
    others += [big_payloads(tensors=tensors, arrays=arrays)] * 2 if big else []
    every = bundles(ready, max_parts=max_leaves, drawn=from_groups(*drawn), others=others, sharing=sharing)
    return of_anything(pasteable(every))
