"""`torch.save` and `torch.load` become steps, and what they do with a path too.

Given a path they read and write it from C++, where no step is seen; given a file they do not. So while steps are
recorded a path is opened here, and the bytes go through it.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch

from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.gate import Call
from rankdrill.boundary.patch import Patch
from rankdrill.boundary.sizes import nbytes_of, type_name
from rankdrill.boundary.staging import staged
from rankdrill.step import Kind, Step

__all__ = ["saving_patches"]

__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test


def saving_patches(boundary: Boundary) -> Iterator[Patch]:
    """What makes `torch.save` and `torch.load` steps of `boundary`. `torch.load(mmap=True)` keeps its path."""
    yield Patch(torch, "save", _saving(boundary))
    yield Patch(torch, "load", _loading(boundary))


def _saving(boundary: Boundary) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            if not boundary.open:
                return original(obj, f, *args, **kwargs)
            step = Step(Kind.OBJECT, "save", type_name(obj), nbytes=nbytes_of(obj))

            def cross(file: Any) -> Any:
                return boundary.cross(
                    step,
                    {"obj": obj, "file": file},
                    lambda call: original(call.args["obj"], call.args["file"], *args, **kwargs),
                )

            if not isinstance(f, str | os.PathLike):
                return staged(f, cross)
            with builtins.open(f, "wb") as opened:  # before anything is pickled, as torch does
                return staged(opened, cross)

        return save

    return make


def _loading(boundary: Boundary) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def load(f: Any, *args: Any, **kwargs: Any) -> Any:
            if not boundary.open or kwargs.get("mmap"):
                return original(f, *args, **kwargs)

            def cross(file: Any) -> Any:

                def real(call: Call) -> Any:
                    return original(call.args["file"], *args, **kwargs)

                return boundary.cross(Step(Kind.OBJECT, "load", type_name(file)), {"file": file}, real)

            if not isinstance(f, str | os.PathLike):
                return cross(f)
            with builtins.open(f, "rb") as opened:
                return cross(io.BytesIO(opened.read()))

        return load

    return make
