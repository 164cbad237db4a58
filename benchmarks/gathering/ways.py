"""All ways to gather, by their keys, in the order in which they are shown."""

from __future__ import annotations

from benchmarks.gathering import bare, ours, theirs
from benchmarks.gathering.setting import Way

WAYS: dict[str, Way] = {way.key: way for way in (*ours.WAYS, *theirs.WAYS, *bare.WAYS)}
