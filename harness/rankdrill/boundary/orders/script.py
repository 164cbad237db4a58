"""What a rank took from others, and what it gave them, from a receive from anybody on: for copies of it to go through.

Between two calls of collectives, or of stores that it asks, the messages may have come in another order, each sender's
own in theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

import torch

from rankdrill.boundary.orders.kept import Kept
from rankdrill.step import Message, Site

__all__ = [
    "Answer",
    "Asked",
    "Came",
    "Difference",
    "Different",
    "End",
    "Made",
    "Script",
    "different",
    "exchanged",
    "told_by",
]

MOST_ORDERS = 8  # that are tried
Change: TypeAlias = Callable[[list[int]], list[int]]
"""Another order of senders."""
Stream: TypeAlias = tuple[str, int]
"""Group and tag."""
Which: TypeAlias = tuple[int, int]
"""The global rank that has sent a message, and which one of those it is."""


Difference: TypeAlias = tuple[str, tuple[tuple[Which, Which], ...]]
"""What would have been different, in words that follow *would have*, had of each of these pairs the second come first.
"""


class Different(NamedTuple):
    """A difference, and in which streams the other order is one."""

    difference: Difference
    streams: frozenset[Stream]


@dataclass(frozen=True)
class Came:
    """A `message` of member `source` of the `group`, taken at `site`; `named`, if the receive had named the sender."""

    group: str
    source: int
    message: Message
    content: tuple[torch.Tensor, ...]
    site: Site | None
    named: bool

    @property
    def stream(self) -> Stream:
        return self.group, self.message.tag

    @property
    def which(self) -> Which:
        return self.message.peer, self.message.number


@dataclass(frozen=True)
class Answer:
    """What was sent to member `target` of the `group`, from whom something had come."""

    group: str
    target: int
    tag: int
    content: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Made:
    """A collective: the tensors it was `given`, and what all of its tensors `held` when it was over."""

    op: str
    name: str
    given: tuple[torch.Tensor, ...]
    held: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Asked:
    """A call of a store that tells the rank something: what it was `given` besides keys, and what came back."""

    op: str
    keys: tuple[str, ...]
    given: tuple[Any, ...]
    answer: Any


@dataclass(frozen=True)
class End:
    """How the body ended: what it returned, as bytes, or the type of what it raised."""

    value: bytes = b""
    raised: str = ""


@dataclass
class Script:
    """`parts` are the messages between one call and the next of those that were `made`, `answers` what was sent back
    there. `kept` is what went into files of the rank's, and into stores; `end` is None where nobody looked so far.
    """

    parts: list[list[Came]] = field(default_factory=lambda: [[]])
    answers: list[list[Answer]] = field(default_factory=lambda: [[]])
    made: list[Made | Asked] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    end: End | None = None

    def came(self, message: Came) -> None:
        self.parts[-1].append(message)

    def answered(self, answer: Answer) -> None:
        self.answers[-1].append(answer)

    def answers_to(self, group: str, member: int) -> bool:
        """Whether something has come from that member, whoever it was, since the collective before."""
        return any(one.group == group and one.source == member and not one.named for one in self.parts[-1])

    def called(self, call: Made | Asked) -> None:
        self.made.append(call)
        self.parts.append([])
        self.answers.append([])

    @property
    def contested(self) -> dict[Stream, Came]:
        """Of each stream the first message of those that may have come otherwise, in the order in which they came."""
        found: dict[Stream, Came] = {}
        for part in self.parts:
            for one in part:
                if len(_sources(part, one.stream)) > 1:
                    found.setdefault(one.stream, one)
        return found

    def otherwise(self) -> Iterator[Script]:
        """The same with other orders: those first that are least different."""
        found: list[list[list[Came]]] = []
        changes = _last_two, _first_two, sorted, _turned, _other_sender_last, _backwards
        streams = self.contested
        each = [(change, streams) for change in changes]
        # What belongs together may come apart: a header from one rank, and what it tells of from another.
        apart = [(_first_two, {stream}) for stream in streams] if len(streams) > 1 else []
        for change, of in (*each, *apart):
            parts = [_rearranged(part, change, of) for part in self.parts]
            told = [[id(one) for one in part] for part in parts]
            known = [[[id(one) for one in part] for part in other] for other in (self.parts, *found)]
            if told not in known and len(found) < MOST_ORDERS:
                found.append(parts)
                yield replace(self, parts=parts)

    def halves(self, other: Script) -> tuple[Script, Script] | None:
        """`other`, which is this in another order, with half of its changes each; None where it is one change: that of
        one stream, between two calls.
        """
        changed = [
            (place, stream)
            for place, (was, is_) in enumerate(zip(self.parts, other.parts, strict=True))
            for stream in dict.fromkeys(one.stream for one, its in zip(was, is_, strict=True) if one is not its)
        ]
        middle = len(changed) // 2
        both = tuple(self._with(other, of) for of in (changed[:middle], changed[middle:]))
        return (both[0], both[1]) if middle else None

    def _with(self, other: Script, changed: Collection[tuple[int, Stream]]) -> Script:
        """This one, with those streams in those parts as `other` has them."""
        parts = [
            [its if (place, one.stream) in changed else one for one, its in zip(was, is_, strict=True)]
            for place, (was, is_) in enumerate(zip(self.parts, other.parts, strict=True))
        ]
        return replace(self, parts=parts)


def different(words: str, before: Script, after: Script) -> Different:
    """That `words` say what was different in the order `after`."""
    pairs = [zip(was, is_, strict=True) for was, is_ in zip(before.parts, after.parts, strict=True)]
    streams = frozenset(one.stream for part in pairs for one, other in part if one is not other)
    return Different((words, exchanged(before, after)), streams)


def told_by(
    found: Sequence[Different], contested: Mapping[Stream, Came]
) -> Iterator[tuple[Came, tuple[Difference, ...]]]:
    """The messages that were taken from whoever came, and should not have been, and what was different; the likeliest
    first.

    What comes after something else, as a header, and is from anybody again, may be from anybody else.
    """
    for stream in (*contested,)[::-1]:
        alone = tuple(each.difference for each in found if each.streams == {stream})
        if alone:
            yield contested[stream], alone
    together = [each for each in found if len(each.streams) > 1]
    if together:
        first = next(stream for stream in contested if any(stream in each.streams for each in together))
        yield contested[first], tuple(each.difference for each in together)


def exchanged(before: Script, after: Script) -> tuple[tuple[Which, Which], ...]:
    """The pairs of messages of which the second comes first in the other order."""
    return tuple(
        (one.which, other.which)
        for was, is_ in zip(before.parts, after.parts, strict=True)
        for one, other in combinations(was, 2)
        if one.stream == other.stream and one.source != other.source and not (one.named or other.named)
        if _place(one, is_) > _place(other, is_)
    )


def _place(message: Came, part: Sequence[Came]) -> int:
    return next(place for place, one in enumerate(part) if one is message)


def _sources(part: Sequence[Came], stream: Stream) -> set[int]:
    return {one.source for one in part if one.stream == stream and not one.named}


def _rearranged(part: Sequence[Came], change: Change, of: Collection[Stream]) -> list[Came]:
    """`part` with the messages from anybody in those streams as `change` has it; a sender's own stay in order."""
    found = list(part)
    for stream in dict.fromkeys(one.stream for one in part if not one.named and one.stream in of):
        places = [place for place, one in enumerate(part) if one.stream == stream and not one.named]
        waiting: dict[int, list[Came]] = {}
        for place in places:
            waiting.setdefault(part[place].source, []).append(part[place])
        for place, source in zip(places, change([part[place].source for place in places]), strict=True):
            found[place] = waiting[source].pop(0)
    return found


def _backwards(sources: list[int]) -> list[int]:
    return sources[::-1]


def _turned(sources: list[int]) -> list[int]:
    return sources[1:] + sources[:1]


def _first_two(sources: list[int]) -> list[int]:
    """The first that is another's than the one before it comes one earlier."""
    for place in range(1, len(sources)):
        if sources[place] != sources[place - 1]:
            return [*sources[: place - 1], sources[place], sources[place - 1], *sources[place + 1 :]]
    return sources


def _last_two(sources: list[int]) -> list[int]:
    return _first_two(sources[::-1])[::-1]


def _other_sender_last(sources: list[int]) -> list[int]:
    """Whoever came first has the last word."""
    return sorted(sources, key=lambda source: source == sources[0])
