"""What of a plugin is to be searched for fixtures: few have any, and all have dozens of other names.

Pytest looks at each name of each plugin when a session starts, several ways. What is found here is kept for the whole
process and for what is forked from it, so that a template searches for all ranks.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

from rankdrill.worlds.versions import Version

__all__ = ["fixture_holder"]


def fixture_holder(plugin: object, kind: type) -> object | None:
    """`plugin`, or a module that has of it only what is of type `kind`; None where there is nothing of it."""
    if isinstance(plugin, ModuleType):
        return _fixtures_of(plugin, kind).alone()
    owner: type = type(plugin)
    return plugin if isinstance(plugin, type) or _has_any(owner, kind) else None


class _FixturesOf:
    """Those of a module."""

    def __init__(self, module: ModuleType, kind: type) -> None:
        self._module = module
        self._kind = kind
        self._version = Version(vars(module))
        self._alone = self._look()

    def alone(self) -> ModuleType | None:
        """A module that has these and nothing else; None where there are none."""
        if self._version.touched():  # by a plugin that makes some as it is configured, say
            self._alone = self._look()
        return self._alone

    def _look(self) -> ModuleType | None:
        names = vars(self._module)
        if "__dir__" in names:  # it says itself what it has
            return self._module
        found = {name: value for name, value in names.items() if type(value) is self._kind}
        alone = ModuleType(self._module.__name__)
        vars(alone).update(found)
        return alone if found else None


@cache
def _fixtures_of(module: ModuleType, kind: type) -> _FixturesOf:
    return _FixturesOf(module, kind)


@cache
def _has_any(owner: type, kind: type) -> bool:
    return any(
        type(value.__func__ if isinstance(value, staticmethod | classmethod) else value) is kind
        for holder in owner.__mro__
        for value in vars(holder).values()
    )
