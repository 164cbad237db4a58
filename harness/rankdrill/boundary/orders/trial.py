"""Whether the order in which messages come matters to a rank: tried out, from its first receive from anybody on.

The copy is made before anything has come. It goes through what its rank went through: first in the same order, where
nothing may be different, or nothing can be said; then in others. A rank gives values away in collectives and at the end
of its body, and these are compared. What it sends to single ranks is not: to whom depends on who has come in many right
programs. It goes on past an answer, to a rank from which something has come, if that is the same in another order, too:
else what that rank would have done then is not known, and the trial is over, as it is at any step that a copy cannot
take alone.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import cloudpickle
import torch

from rankdrill.boundary.gate import Gate
from rankdrill.boundary.orders.copies import Copy, fork_copy
from rankdrill.boundary.orders.recording import Recorder
from rankdrill.boundary.orders.replay import Replay
from rankdrill.boundary.orders.script import Difference, End, Script, told_by
from rankdrill.step import Message, Site, Step

__all__ = ["Orders", "shares_memory"]

MOST_TRIALS = 2  # in one run
FEWEST_RANKS = 3  # for two of them to send to a third


class _Part(Protocol):
    """What a copy does where its rank's body ends, and where it is about to talk to others."""

    def over(self, value: Any, error: BaseException | None) -> NoReturn: ...

    def end(self, difference: str) -> NoReturn: ...


@dataclass
class _Trial:
    copy: Copy
    script: Script
    recorder: Recorder


class Orders:
    """The trials of one rank; and, in a copy of it, its part in one."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._left = 0
        self._own = ""
        self._trial: _Trial | None = None
        self._asked: list[tuple[Script, Copy]] = []
        self._replay: _Part | None = None
        self._found: dict[tuple[Site | None, str, int], tuple[Difference, ...]] = {}

    def begin(self, ranks: int, own: str, *, watched: bool) -> None:
        """A run of so many ranks begins; what is shared within the directory `own` is rankdrill's."""
        self.drop()
        self._own = own
        self._left = MOST_TRIALS if ranks >= FEWEST_RANKS and watched else 0

    def before(self) -> None:
        """The rank is about to receive from anybody, undisturbed. Returns in copies, too."""
        on_gpu: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # a copy could not use it
        alone = threading.current_thread() is threading.main_thread() and not on_gpu
        if not self._left or self._trial is not None or not alone:
            return
        self._left -= 1
        with self._gate.closed():
            if shares_memory(self._own):
                return
            copy = fork_copy()
        if isinstance(copy, Copy):
            script = Script()
            recorder = Recorder(script, self.stop)
            self._trial = _Trial(copy, script, recorder)
            self._gate.also(recorder)
        else:
            replay = Replay(copy)
            self.be_a_copy(replay)
            self._gate.stand_in(replay)

    def be_a_copy(self, part: _Part) -> None:
        """In a copy of the rank: this is what it does at its end."""
        self._replay = part

    @property
    def under_way(self) -> bool:
        """Whether a trial is, for which messages are written down."""
        return self._trial is not None

    @property
    def found(self) -> bool:
        """Whether the order matters somewhere, and nobody has been told."""
        return bool(self._found)

    def came(self, taken: Step, message: Message, source: int, into: Any) -> None:
        """The receive `taken` has got `message` from member `source` of its group: what lies in the tensors `into`."""
        if self._trial is not None:
            self._trial.recorder.came(taken, message, source, into)

    @property
    def in_copy(self) -> bool:
        """Whether this is a copy of the rank, which plays its part in a trial, and is no child of the user's."""
        return self._replay is not None

    def over(self, value: Any = None, error: BaseException | None = None) -> None:
        """The body has ended so: have the copies come to their ends, too. Does not return in a copy."""
        if self._replay is not None:
            self._replay.over(value, error)
        if self._trial is not None:
            with self._gate.closed():
                self._trial.script.end = _end(value, error)
            self.stop()
        with self._gate.closed():
            for script, copy in self._asked:
                differences = copy.differences()
                for came, told in told_by(differences, script.contested):
                    self._found[(came.site, *came.stream)] = told
        self.drop()

    def leave(self) -> None:
        """The rank is about to talk to its controller: no business of a copy, which does not return."""
        if self._replay is not None:
            self._replay.end("")
        self.stop()

    def stop(self) -> None:
        """What comes now cannot be told to a copy: have it begin with what there is."""
        trial, self._trial = self._trial, None
        if trial is None:
            return
        self._gate.without(trial.recorder)
        with self._gate.closed():
            if trial.script.contested:
                trial.copy.try_(trial.script)
                self._asked.append((trial.script, trial.copy))
            else:
                trial.copy.end()

    def take(self) -> dict[tuple[Site | None, str, int], tuple[Difference, ...]]:
        """By line, group and tag: what would have been different in other orders. It is forgotten then."""
        found, self._found = self._found, {}
        return found

    def drop(self) -> None:
        """Be rid of all copies."""
        copies = [copy for _, copy in self._asked] + ([self._trial.copy] if self._trial is not None else [])
        if self._trial is not None:
            self._gate.without(self._trial.recorder)
        self._asked, self._trial = [], None
        for copy in copies:
            copy.end()


def shares_memory(own: str) -> bool:
    """Whether the process writes to memory that others see: a copy would, too."""
    with open("/proc/self/maps") as maps:
        mapped = [line.split(maxsplit=5) for line in maps]
    return any(
        "w" in each[1] and each[1].endswith("s") and not (len(each) > 5 and each[5].startswith(own)) for each in mapped
    )


def _end(value: Any, error: BaseException | None) -> End | None:
    if error is not None:
        return End(raised=type(error).__qualname__)
    try:
        return End(cloudpickle.dumps(value))
    except Exception:  # it cannot be told
        return None
