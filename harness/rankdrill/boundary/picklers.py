"""Pickler and Unpickler classes whose `dump` and `load` are steps.

They take the place of `pickle.Pickler` and `pickle.Unpickler`, C types whose methods cannot be replaced. A class that
was derived from one of these before, as dill's is, may call them by the name that is another class now: `original` is
called by its own, and what such an instance lacks was never recorded.
"""

from __future__ import annotations

from typing import Any

from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.gate import Call
from rankdrill.boundary.sizes import nbytes_of, type_name
from rankdrill.boundary.staging import staged
from rankdrill.step import Kind, Step

__all__ = ["drilled_pickler", "drilled_unpickler"]


class _Outlet:
    """What a pickler writes to: the file it was given, or for one step another."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def write(self, data: Any) -> Any:
        return self.file.write(data)


def drilled_pickler(original: Any, boundary: Boundary) -> Any:
    """A subclass of the pickler class `original` whose `dump` is a step of `boundary`."""

    class Pickler(original):  # type: ignore[misc]
        def __init__(self, file: Any, *args: Any, **kwargs: Any) -> None:
            self._rankdrill_outlet: _Outlet | None = None
            # One made while nothing is recorded writes straight to its file, as fast as ever.
            if boundary.open and hasattr(file, "write"):
                file = self._rankdrill_outlet = _Outlet(file)
            original.__init__(self, file, *args, **kwargs)

        def dump(self, obj: Any) -> Any:
            __tracebackhide__ = True
            outlet = getattr(self, "_rankdrill_outlet", None)
            if outlet is None or not boundary.open:
                return original.dump(self, obj)

            def real(call: Call) -> Any:
                __tracebackhide__ = True
                given, outlet.file = outlet.file, call.args["file"]
                try:
                    return original.dump(self, call.args["obj"])
                finally:
                    outlet.file = given

            step = Step(Kind.OBJECT, "dump", type_name(obj), nbytes=nbytes_of(obj))

            def cross(to: Any) -> Any:
                __tracebackhide__ = True
                return boundary.cross(step, {"obj": obj, "file": to}, real)

            return staged(outlet.file, cross)

    return _dressed(Pickler, original)


def drilled_unpickler(original: Any, boundary: Boundary) -> Any:
    """A subclass of the unpickler class `original` whose `load` is a step of `boundary`."""

    class Unpickler(original):  # type: ignore[misc]
        def __init__(self, file: Any, **kwargs: Any) -> None:
            original.__init__(self, file, **kwargs)
            self._rankdrill_file = file
            self._rankdrill_options = kwargs

        def load(self) -> Any:
            __tracebackhide__ = True
            file = getattr(self, "_rankdrill_file", None)
            if file is None or not boundary.open:
                return original.load(self)

            def real(call: Call) -> Any:
                __tracebackhide__ = True
                if call.args["file"] is not file:
                    original.__init__(self, call.args["file"], **self._rankdrill_options)
                return original.load(self)

            step = Step(Kind.OBJECT, "load", type_name(file))
            return boundary.cross(step, {"file": file}, real)

    return _dressed(Unpickler, original)


def _dressed(drilled: Any, original: Any) -> Any:
    drilled.__module__, drilled.__qualname__, drilled.__doc__ = (
        original.__module__,
        original.__qualname__,
        original.__doc__,
    )
    return drilled
