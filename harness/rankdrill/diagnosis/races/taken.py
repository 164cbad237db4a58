"""What a rank tells of a line where it has received from anybody."""

from __future__ import annotations

from dataclasses import dataclass

from rankdrill.step import Site

__all__ = ["Taken"]


@dataclass(frozen=True, slots=True)
class Taken:
    """At `site` messages with `tag` on `group` were received from anybody: from `senders`, global ranks.

    `differ`: they have not all sent the same. `elements` is how many the smallest message had. `otherwise` is what
    the rank would have done had they come in other orders, as copies of it did: in words, and the pairs of messages, by
    sender and number, of which the second came first. `by_lines`: `site` is the first of several lines of its function
    that took them. `vary`: one has sent different things, one after the other.
    """

    site: Site
    group: str
    tag: int
    senders: tuple[int, ...]
    differ: bool
    elements: int
    otherwise: tuple[tuple[str, tuple[tuple[tuple[int, int], tuple[int, int]], ...]], ...] = ()
    by_lines: bool = False
    vary: bool = False
