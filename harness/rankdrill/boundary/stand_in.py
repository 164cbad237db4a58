"""A function that stands in for one of torch's, where others tell torch's functions apart by identity."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function

from rankdrill.boundary.modes_seam import function_mode_is_on
from rankdrill.boundary.torch_seam import known_to_torchscript

__all__ = ["StandIn"]

__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test


class StandIn:
    """`do` in the place of `original`, a function or method of torch which classes and modes may override.

    Whoever overrides (``__torch_function__``) is handed what has the public name, as without this: that may be compared
    with ``torch.stack`` by ``is``. A table with torch's functions as keys finds one by the other, since both are equal:
    it may have been filled before this stood in, or be asked after it is gone.
    """

    def __init__(self, original: Any, do: Callable[..., Any]) -> None:
        functools.update_wrapper(self, original)
        self._original = original
        self._do = do
        known_to_torchscript(self, original)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self._original(*args, **kwargs)  # the compiler follows calls into here, and runs nothing
        every = (*args, *kwargs.values()) if kwargs else args
        if has_torch_function(every) or function_mode_is_on() or _list_overrides(every):
            return handle_torch_function(self, tuple(_flat(every)), *args, **kwargs)
        return self._do(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: bound where `original` would be, which a function of a module is not."""
        bound = self._original.__get__(instance, owner) if hasattr(self._original, "__get__") else self._original
        return self if bound is self._original else functools.partial(self, instance)

    def __eq__(self, other: object) -> bool:
        return other is self or (other._original if isinstance(other, StandIn) else other) == self._original

    def __hash__(self) -> int:
        return hash(self._original)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._original.__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return repr(self._original)


def _list_overrides(arguments: tuple[Any, ...]) -> bool:
    for argument in arguments:  # noqa: SIM110  # for every call: a generator takes longer than all the rest
        if isinstance(argument, list | tuple) and has_torch_function(argument):
            return True
    return False


def _flat(arguments: tuple[Any, ...]) -> Iterator[Any]:
    """What may override: arguments, and what lists among them hold."""
    for argument in arguments:
        if isinstance(argument, list | tuple):
            yield from argument
        else:
            yield argument
