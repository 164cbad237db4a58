"""Accesses to the memory of tensors, seen while a call is under way that works on some of it.

A function mode of torch sees each function that Python calls, and looks where the tensors lie that it is given. Where
they lie in memory that is in use, and in a backward pass, whose tensors nobody names, a dispatch mode sees the
operators that come of it: their schemas say what is read, what is written, and what only makes a view.

Not seen: what a thread of a library does, or the main thread while none of its own calls is under way; what a compiled
function does, and what is done to memory that numpy or another library shares with a tensor, of which
`rankdrill.boundary.prints` tells what was changed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import torch
from torch.overrides import TorchFunctionMode

from rankdrill.boundary import modes_seam, torch_seam
from rankdrill.boundary.callsites import called_by_user
from rankdrill.boundary.regions import Extent, extent_of

__all__ = ["AccessWatch", "Use", "Watched"]

_jit: Any = torch.jit  # whose stubs leave `is_tracing` out
_C10D = torch_seam.c10d.__name__
_COMMUNICATION = frozenset({"c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd"})
_WITHOUT_OPERATORS = frozenset({"tolist", "__repr__", "__format__"})
"""Functions that read without an operator."""
_PRINTING = frozenset({"__repr__", "__format__"})
_BACKWARD = frozenset({"backward", "grad"})
_SHAPE_ONLY = ("new_", "is_", "sym_", "can_cast", "result_type", "record_stream")
"""How operators begin that look at no element."""


class Use(StrEnum):
    """What is done to memory, in words that follow ``rank 2``."""

    READ = "read"
    WRITE = "wrote into"
    CHANGE = "changed"  # by other means than torch's functions: that it was is all that is known
    FREE = "freed"
    MOVE = "moved"


class Watched(Protocol):
    """The memory that is in use."""

    def __bool__(self) -> bool: ...

    def concerns(self, extent: Extent) -> bool:
        """Whether something is under way there."""

    def touched(self, extent: Extent, use: Use) -> None:
        """It is accessed; may raise."""


class _Inside(threading.local):
    """How deep this thread is in calls of torch's communication that the mode has let pass."""

    depth = 0


class AccessWatch(TorchFunctionMode):
    """Tells `watched` of accesses by the threads that it has begun on and not ended on.

    It lies below the modes that the user has entered, since torch takes the uppermost off the stack whichever mode is
    left. One that cannot be taken off, being in the middle of a call, does nothing once nothing is under way.
    """

    def __init__(self, watched: Watched) -> None:
        super().__init__()
        self._watched = watched
        self.inside = _Inside()

    def begin(self) -> None:
        """Watch this thread."""
        if not self.inside.depth:  # else it is off for the duration of a call, and will be on again
            modes_seam.lay_function_mode(self)

    def end(self) -> None:
        """Watch this thread no more."""
        modes_seam.lift_function_mode(self)

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        __tracebackhide__ = True
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == _C10D:  # what is issued is looked at where it is issued
            inside = self.inside
            inside.depth += 1
            try:
                return func(*args, **kwargs)
            finally:
                inside.depth -= 1
        # Compilers follow calls into here, and run nothing.
        if torch.compiler.is_compiling() or _jit.is_tracing() or not self._watched:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        concerned = [extent for extent in _extents((args, kwargs)) if self._watched.concerns(extent)]
        if name in _WITHOUT_OPERATORS and (name not in _PRINTING or called_by_user()):
            for extent in concerned:
                self._watched.touched(extent, Use.READ)
        if not concerned and name not in _BACKWARD:
            return func(*args, **kwargs)
        with _Operators(self._watched):
            return func(*args, **kwargs)


class _Operators(modes_seam.DispatchMode):  # type: ignore[no-untyped-call]  # torch's own hook has no types
    """Tells `watched` of accesses by operators."""

    def __init__(self, watched: Watched) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watched = watched

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        __tracebackhide__ = True
        kwargs = kwargs or {}
        if modes_seam.is_operator(func) and not _only_looks_at_shapes(func):
            for use, value in _operands(func, args, kwargs):
                for extent in _extents(value):
                    self._watched.touched(extent, use)
        return func(*args, **kwargs)


def _only_looks_at_shapes(operator: Any) -> bool:
    name = operator.__name__.partition(".")[0]
    return (
        operator.namespace in _COMMUNICATION
        or operator.is_view
        or torch.Tag.inplace_view in operator.tags
        or name.startswith(_SHAPE_ONLY)
        or name.endswith("_like")
    )


def _operands(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Use, Any]]:
    """Each argument, and whether the schema says that it is written."""
    for place, (name, written) in enumerate(modes_seam.arguments_of(operator)):
        if place < len(args) or name in kwargs:
            yield Use.WRITE if written else Use.READ, args[place] if place < len(args) else kwargs[name]


def _extents(value: Any) -> Iterator[Extent]:
    for tensor in _tensors(value):
        extent = extent_of(tensor)
        if extent is not None:
            yield extent


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
