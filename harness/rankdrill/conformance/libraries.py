"""Which libraries ranks are going to import for a gather, so that they are imported once, where ranks are forked from.

A rank that fails is replaced by a fresh one, and one that imports what the gather's repo stands on spends a second of
processor time and more on it. The gather's own package and the user's modules each rank imports by itself: what they
make as they are imported, a unique name say, is another on each rank, and may be what is wrong with them.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import torch

from rankdrill.whose import Whose, whose_file

__all__ = ["libraries_of"]

_NAMES_A_MODULE = (FunctionType, BuiltinFunctionType)
_DEEP = 4  # functions that an adapter's function is made of: a wrapper, and what it wraps
_MOST_CHARACTERS = 20_000  # of names; a package leads to most that are below it
_KNOWN = {"torch", "numpy", "rankdrill", "cloudpickle", "pytest", "hypothesis", "__main__", *sys.stdlib_module_names}
_ASKS_FOR_GPUS = "torch.testing"  # as it is imported, after which a fork cannot use them
_DEVICES = "/dev/nvidia"


def libraries_of(*gathers: Callable[..., Any]) -> tuple[str, ...]:
    """Modules of libraries, and of torch, that `gathers` lead to by what this process has imported for them.

    None where something has opened a GPU: a fork of who has cannot use it, and the import of a library may do that.
    """
    if torch.cuda.is_initialized() or _holds_gpu():  # type: ignore[no-untyped-call]
        return ()
    own = {_top(name) for gather in gathers for name in _modules_of(gather, _DEEP)} - _KNOWN
    found: dict[str, None] = {}
    libraries: set[str] = set()
    waiting, seen = [name for name in sys.modules if _top(name) in own], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or (module := sys.modules.get(name)) is None:
            continue
        seen.add(name)
        whose = whose_file(getattr(module, "__file__", None) or "<frozen")
        if whose is Whose.TORCH:
            if not name.startswith(_ASKS_FOR_GPUS):
                found[name] = None
        elif _top(name) in own or whose is Whose.USER:
            waiting += _named_in(module)
        elif _top(name) not in _KNOWN:
            libraries.add(_top(name))
    found.update((name, None) for name in list(sys.modules) if _top(name) in libraries)
    return tuple(_within(_MOST_CHARACTERS, sorted(filter(_is_found_anywhere, found), key=_depth)))


def _top(name: str) -> str:
    return name.partition(".")[0]


def _depth(name: str) -> int:
    return name.count(".")


def _within(characters: int, names: Sequence[str]) -> Iterator[str]:
    """As many of `names`, from the first, as have no more `characters` together."""
    for name in names:
        characters -= len(name)
        if characters < 0:
            return
        yield name


def _modules_of(function: Any, deep: int) -> Iterator[str]:
    """The modules of `function` and of those that it is made of or names."""
    if issubclass(type(function), ModuleType):  # what stands for something else is not asked for its class
        yield function.__name__
        return
    module, code = _asked(function, "__module__"), _asked(function, "__code__")
    if isinstance(module, str):
        yield module
    if not isinstance(code, CodeType) or deep == 0 or (isinstance(module, str) and module.startswith("torch.")):
        return
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    names = [function.__globals__[name] for name in code.co_names if name in function.__globals__]
    # What a function of the adapter names is the gather; what the gather itself names may be a library.
    for part in (*cells, *(names if whose_file(code.co_filename) is Whose.USER else ())):
        yield from _modules_of(part, deep - 1)


def _asked(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:  # what stands for something else may raise whatever that would
        return None


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _named_in(module: ModuleType) -> Iterator[str]:
    """The modules that `module` has, and those of functions and classes that it has; nothing else is asked for its
    module, for that might import it."""
    for value in list(vars(module).values()):
        if type(value) is ModuleType:
            yield value.__name__
        elif type(value) in _NAMES_A_MODULE or type(value) is type:
            where = value.__module__
            if isinstance(where, str):
                yield where


def _is_found_anywhere(name: str) -> bool:
    """Whether a process that knows nothing of this one's changes finds the module `name`."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    origin = getattr(spec, "origin", None)
    if spec is None or spec.name != name or not isinstance(origin, str):
        return False
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return origin.startswith((*map(os.path.abspath, given), *map(sysconfig.get_path, ("purelib", "platlib"))))


def _holds_gpu() -> bool:
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith(_DEVICES):
                return True
        except OSError:  # closed since
            continue
    return False
