"""Private APIs of torch that have to do with modes; `tests/boundary/test_torch_seam.py` fails when one changes.

What is used, and why:

- ``torch._C._push_on_torch_function_stack`` and its kin: the public way to enter a function mode puts it on top, where
  the user's own modes, as they are left, would take it off in their place. ``torch._GLOBAL_DEVICE_CONTEXT``: the one
  that has to be at the bottom.
- ``torch._C._is_torch_function_mode_enabled``: what `torch.overrides.handle_torch_function` asks itself.
- ``torch._C.DisableTorchFunction``: to look at a tensor without asking the modes that are on.
- ``TorchDispatchMode._should_skip_dynamo``, ``ignore_compile_internals``: what a mode has to do with the compiler.
- ``OpOverload._schema``: which arguments an operator writes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "FUNCTION_MODES",
    "DispatchMode",
    "arguments_of",
    "function_mode_is_on",
    "is_operator",
    "lay_function_mode",
    "lift_function_mode",
    "plainly",
]

# How many are on this thread; put one on top; take that off.
FUNCTION_MODES = (
    torch._C._len_torch_function_stack,
    torch._C._push_on_torch_function_stack,
    torch._C._pop_torch_function_stack,
)


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own hook has no types
    """A dispatch mode whose own code is not handed to the compiler, nor keeps others' code from being compiled."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True has the compiler imported, which takes seconds, by the first call that is dispatched.
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True


def function_mode_is_on() -> bool:
    """Whether functions of torch ask a mode first, now and on this thread."""
    return bool(torch._C._is_torch_function_mode_enabled())


def plainly() -> Any:
    """A context in which functions of torch do what they do, whatever modes and subclasses say."""
    return torch._C.DisableTorchFunction()


def lay_function_mode(mode: TorchFunctionMode) -> None:
    """Put `mode` below all function modes of this thread, unless it is among them.

    Torch keeps that of `set_default_device` at the very bottom, and relies on finding it there.
    """
    if not torch._C._len_torch_function_stack():  # nearly always
        torch._C._push_on_torch_function_stack(mode)
        return
    modes = _take_function_modes()
    if all(each is not mode for each in modes):
        default = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
        modes.insert(1 if modes and modes[0] is default else 0, mode)
    _put_function_modes(modes)


def lift_function_mode(mode: TorchFunctionMode) -> None:
    """Take `mode` from among the function modes of this thread, if it is there."""
    depth = torch._C._len_torch_function_stack()
    if depth == 1:  # nearly always
        only = torch._C._pop_torch_function_stack()
        if only is not mode:
            torch._C._push_on_torch_function_stack(only)
    elif depth:
        _put_function_modes([each for each in _take_function_modes() if each is not mode])


def _take_function_modes() -> list[Any]:
    modes = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
    return modes[::-1]


def _put_function_modes(modes: Sequence[Any]) -> None:
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)


def is_operator(func: Any) -> bool:
    """Whether `func` is an operator with a schema; others are made of several."""
    return isinstance(func, torch._ops.OpOverload)


@functools.cache
def arguments_of(operator: Any) -> tuple[tuple[str, bool], ...]:
    """The name of each argument of `operator`, and whether it is written."""
    return tuple(
        (each.name, each.alias_info is not None and each.alias_info.is_write) for each in operator._schema.arguments
    )
