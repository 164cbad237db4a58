"""What the ranks are told of a question, and what each has to say of it."""

from __future__ import annotations

from dataclasses import dataclass

from rankdrill.conformance.adapter import Adapter
from rankdrill.conformance.kit.complaints.guesses import Guess
from rankdrill.conformance.kit.samples.sample import Sample

__all__ = ["Call", "Heard", "Script", "Told"]


@dataclass(frozen=True)
class Call:
    """One call of the gather, by the ranks `members`, all if None; `late` ranks come to it so many seconds later.

    Rank `spoils` of the group contributes what `HOSTILE` has under `spoiled`, instead of what the sample says. With
    `fits` the bound on payloads is just above the largest of this call. With `scrambles` what was sent and what was
    received is changed in place once it has been looked at.
    """

    sample: Sample
    turn: int
    members: tuple[int, ...] | None = None
    late: tuple[tuple[int, float], ...] = ()
    spoils: int | None = None
    spoiled: str = ""
    fits: bool = False
    scrambles: bool = False


@dataclass(frozen=True)
class Script:
    """The calls of one run, in order. With `watched` it is told what they changed in the process.

    `directory` is the caller's; `work` is the working directory, and `scratch` the one for temporary files. With
    `patience`, in seconds, the groups give up after that long. Where ranks `meet`, none makes a call before all have
    made the one before. Where they `regroup`, those that no call has as members get a group too, and at the end all
    make one together, as torch makes it where only members take part.
    """

    adapter: Adapter
    calls: tuple[Call, ...]
    directory: str
    work: str
    scratch: str
    timeout: float
    watched: bool = False
    patience: float | None = None
    meet: bool = False
    regroup: bool = False


@dataclass(frozen=True)
class Heard:
    """What a rank has to say of one call: where the result is `wrong`, and what it is `like`, the best guess first; or
    which `error` it raised, as text, and which ranks that error `blames`, None if it is of no type that could. `shared`
    says what changed with something else. Who was `idle` was to receive nothing: that it is right says nothing.
    """

    call: int
    wrong: str = ""
    error: str = ""
    blames: tuple[int, ...] | None = None
    shared: str = ""
    like: tuple[Guess, ...] = ()
    idle: bool = False


@dataclass(frozen=True)
class Told:
    """All that a rank has to say: of each call, of results that `changed` after they had been right, and of what is
    `left` or set otherwise in its process.
    """

    heard: tuple[Heard, ...]
    changed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
