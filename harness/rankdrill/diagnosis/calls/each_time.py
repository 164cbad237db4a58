"""One line that a rank goes past more than once, or comes to more often, which shows only when calls no longer fit.

With one call left out nothing fits then, wherever it is; with all those of one line, everything does.
"""

from __future__ import annotations

from collections.abc import Sequence

from rankdrill.step import Step

__all__ = ["left_out_each_time"]


def left_out_each_time(longer: Sequence[Step], shorter: Sequence[Step]) -> list[int]:
    """The calls of `longer`, two or more of one line, without which it fits all that is known of `shorter`.

    Empty where that is not so. The last call of `longer` fits one of `shorter`: what follows there would have followed.
    """
    places: list[int] = []
    made = 0
    for place, call in enumerate(longer):
        if made == len(shorter):
            break
        if _are_alike(call, shorter[made]):
            made += 1
        elif call.site is None or (places and call.site != longer[places[0]].site):
            return []
        else:
            places.append(place)
    return places if len(places) > 1 and places[-1] < len(longer) - 1 else []


def _are_alike(one: Step, other: Step) -> bool:
    return (one.op, one.digest, one.site) == (other.op, other.digest, other.site)
