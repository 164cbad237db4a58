"""Objects become steps where they are pickled and unpickled: by `pickle`, torch's own picklers, cloudpickle."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle

from rankdrill.boundary import torch_seam
from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.patch import Patch
from rankdrill.boundary.picklers import drilled_pickler, drilled_unpickler
from rankdrill.boundary.sizes import nbytes_of, type_name
from rankdrill.boundary.staging import staged
from rankdrill.step import Kind, Step

__all__ = ["object_patches"]

__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test


def object_patches(boundary: Boundary) -> Iterator[Patch]:
    """What makes pickling and unpickling steps of `boundary`."""
    pickler = functools.cache(lambda original: drilled_pickler(original, boundary))
    unpickler = functools.cache(lambda original: drilled_unpickler(original, boundary))
    yield Patch(pickle, "Pickler", pickler)
    yield Patch(pickle, "Unpickler", unpickler)
    for name, make in zip(torch_seam.PICKLER_NAMES, (pickler, unpickler), strict=True):
        yield Patch(torch_seam.c10d, name, make)
    yield Patch(pickle, "dumps", _dumping_to_bytes(boundary))
    yield Patch(pickle, "loads", _loading_from_bytes(boundary))
    yield Patch(pickle, "dump", _dumping(boundary))
    yield Patch(pickle, "load", _loading(boundary))
    for module in (cloudpickle, cloudpickle.cloudpickle):
        yield Patch(module, "dumps", _dumping_to_bytes(boundary))
        yield Patch(module, "dump", _dumping(boundary))
    # cloudpickle's load and loads are pickle's, under a second name.
    yield Patch(cloudpickle, "loads", _loading_from_bytes(boundary))
    yield Patch(cloudpickle, "load", _loading(boundary))


def _dumping_to_bytes(boundary: Boundary) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def dumps(obj: Any, *args: Any, **kwargs: Any) -> Any:
            if not boundary.open:
                return original(obj, *args, **kwargs)
            step = Step(Kind.OBJECT, "dumps", type_name(obj), nbytes=nbytes_of(obj))
            return boundary.cross(step, {"obj": obj}, lambda call: original(call.args["obj"], *args, **kwargs))

        return dumps

    return make


def _loading_from_bytes(boundary: Boundary) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def loads(data: Any, /, **kwargs: Any) -> Any:
            if not boundary.open:
                return original(data, **kwargs)
            step = Step(Kind.OBJECT, "loads", type_name(data), nbytes=nbytes_of(data))
            return boundary.cross(step, {"data": data}, lambda call: original(call.args["data"], **kwargs))

        return loads

    return make


def _dumping(boundary: Boundary) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def dump(obj: Any, file: Any, *args: Any, **kwargs: Any) -> Any:
            if not boundary.open:
                return original(obj, file, *args, **kwargs)
            step = Step(Kind.OBJECT, "dump", type_name(obj), nbytes=nbytes_of(obj))

            def cross(to: Any) -> Any:
                return boundary.cross(
                    step,
                    {"obj": obj, "file": to},
                    lambda call: original(call.args["obj"], call.args["file"], *args, **kwargs),
                )

            return staged(file, cross)

        return dump

    return make


def _loading(boundary: Boundary) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def load(file: Any, **kwargs: Any) -> Any:
            if not boundary.open:
                return original(file, **kwargs)
            step = Step(Kind.OBJECT, "load", type_name(file))
            return boundary.cross(step, {"file": file}, lambda call: original(call.args["file"], **kwargs))

        return load

    return make
