"""How a call ends for all ranks where one of them cannot go on: hang up, agree on what happened, raise it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from rankdrill.errors import GatherError, describe
from rankdrill.gathers.agreement.callsite import CallPlace
from rankdrill.gathers.agreement.channel import Channel
from rankdrill.gathers.agreement.line import LineDownError
from rankdrill.gathers.agreement.outcomes import Trouble, TroubleKind, together
from rankdrill.gathers.agreement.post_mortem import Mark, PostMortem, Settlement

__all__ = ["GENERATIONS_FOLLOWED", "Settling", "SupersededError"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called

# A call follows the others through at most so many broken generations.
GENERATIONS_FOLLOWED = 64


class SupersededError(Exception):
    """The generation ended in an earlier call than this one; go on in the next."""


class Settling:
    """Of one call of `path` at `place`: its `number`, and whether it has `met` the other ranks.

    The others are heard for `grace_s` seconds at most.
    """

    def __init__(self, channel: Channel, path: str, place: CallPlace, grace_s: float) -> None:
        self._channel = channel
        self._path = path
        self._place = place
        self._grace_s = grace_s
        self._began = time.monotonic()
        self.number = 0
        self.met = False

    def error(self, troubles: Sequence[tuple[int, Trouble]], hint: str = "") -> GatherError:
        """What all ranks that know of `troubles`, by channel rank, raise."""
        labels = self._channel.labels
        named = [
            (labels[rank], replace(trouble, culprit=None if trouble.culprit is None else labels[trouble.culprit]))
            for rank, trouble in troubles
        ]
        return together(self._path, named, hint)

    def lost(self, seen: str, troubles: Sequence[tuple[int, Trouble]] = ()) -> NoReturn:
        """Hang up, settle with the others what happened, and raise it."""
        if self._channel.size == 1:
            raise self.error(troubles, seen)
        self.raise_settled(self._settle(seen, troubles, self._grace_s))

    def line_down(self, cause: str) -> NoReturn:
        """As `lost`, where an operation between the ranks failed or timed out."""
        self.lost(f"after {time.monotonic() - self._began:.1f} s: {cause}")

    def give_up(self, error: BaseException, agreed: bool) -> None:
        """What this rank cannot report in a slot: hang up and tell the others through the store."""
        if isinstance(error, LineDownError):
            self.line_down(str(error))
        if not isinstance(error, Exception):
            # An interrupt is not ours to turn into something else, nor to delay.
            if self._channel.size > 1:
                self._settle("", [(self._channel.rank, Trouble(TroubleKind.LOST, f"left: {describe(error)}"))], 0)
                self._channel.next_generation()
            return
        kind = (
            TroubleKind.STORAGE if isinstance(error, OSError) else TroubleKind.DECODE if agreed else TroubleKind.ENCODE
        )
        trouble = Trouble(kind, f"while {'receiving' if agreed else 'preparing'}: {describe(error)}")
        for _ in range(GENERATIONS_FOLLOWED):
            try:
                self.lost("", [(self._channel.rank, trouble)])
            except SupersededError:
                continue
            except GatherError as shared:
                raise shared from error

    def raise_settled(self, settled: Settlement) -> NoReturn:
        """Leave the generation, which ended so, and raise that; SupersededError if this call came after it."""
        self._channel.next_generation()
        skipped = not settled.met and any(self._place.comes_after_or_before(place) for place in settled.places)
        if not self.met and (self.number > settled.number or skipped):
            # The others gave up a call that this rank has behind it.
            self.number = max(self.number, settled.number + 1)
            raise SupersededError
        self.number = max(self.number, settled.number)
        raise self.error(settled.troubles, settled.hint)

    def _settle(self, seen: str, troubles: Sequence[tuple[int, Trouble]], grace_s: float) -> Settlement:
        self._channel.hang_up()
        mark = Mark(self._path, self.number, self._place, self.met)
        try:
            return PostMortem(self._channel.board).settle(mark, troubles, seen, grace_s)
        except Exception as error:
            # The store is gone, usually with the rank that held it.
            return Settlement(self.number, tuple(troubles), f"{seen}; the store: {describe(error)}")
