"""The condition of a process at one moment, and the way back to it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rankdrill.worlds.processes.state.settings import SETTINGS
from rankdrill.worlds.processes.state.watch import Watch

__all__ = ["Condition"]


class Condition:
    """What this process is like now; made before a body runs, asked to `restore` when it has.

    With `code` it also tells whether modules, or functions of torch, are others than they were. `docs/warm.md` has the
    table of what is put back and what leads to a fresh world.
    """

    def __init__(self, *, code: bool = False) -> None:
        self._code = code
        self._was: dict[str, Any] = {setting.name: setting.read() for setting in SETTINGS}
        self._watch = Watch(code=self._code)

    def allow(self, before: Condition) -> None:
        """Take what has changed since `before` for part of this condition: a fixture that outlives the body set it."""
        for setting in SETTINGS:
            was, now = before._was[setting.name], setting.read()
            if was == now:
                continue
            mine = self._was[setting.name]
            if isinstance(now, dict):  # the body may have changed others of them
                changed = {name: value for name, value in now.items() if was.get(name) != value}
                kept = {name: value for name, value in mine.items() if name in now or name not in was}
                self._was[setting.name] = {**kept, **changed}
            else:
                self._was[setting.name] = now
        self._watch = Watch(code=self._code)

    def restore(self) -> tuple[str, ...]:
        """Put back all that can be; returns what cannot, in words."""
        left = []
        for setting in SETTINGS:
            was, now = self._was[setting.name], setting.read()
            if was != now:
                try:
                    setting.put_back(was, now)
                except Exception as error:
                    left.append(f"changed {setting.name} ({error})")
        left.extend(self._watch.left())
        return tuple(left)

    def held(self, kept: Collection[int] = ()) -> tuple[str, ...]:
        """What else cannot be put back, in words: asked after `restore`, when of the body's own only `kept` is left."""
        return tuple(self._watch.held(kept))
