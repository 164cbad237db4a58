"""Through what the mutants are asked: the ways of rankdrill.conformance, and some of them over another line.

An adapter is a name: that of a way; or that with `on gloo`, where the ranks share no memory; `on two machines`, where
they are taken for being on two; or `with weights_only`, which carries nothing but tensors here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rankdrill.conformance.ways import WAYS

__all__ = ["ADAPTERS", "CLASS", "Asked"]

CLASS = "TestGather"
_LINE = "RANKDRILL_LINE"

_FILE = """\
from pathlib import Path

import rankdrill
from rankdrill.conformance import conformance
from rankdrill.conformance.ways import WAYS, At

assert Path(rankdrill.__file__).is_relative_to(Path(__file__).parent), rankdrill.__file__

WAY = WAYS[{way!r}]


def call(payload, given):
    at = At(given.group, given.directory, given.timeout, room=given.room, weights_only={weights_only!r})
    return WAY.call(payload, at)


{name} = conformance(call, name=WAY.name, gives=WAY.given_to, takes={takes!r}, keeps={keeps!r}, promises={promises!r})
"""


@dataclass(frozen=True)
class Asked:
    """A way, how it is called, and over which `line`, by default the one that is there."""

    way: str
    weights_only: bool = False
    line: str = ""

    @property
    def environment(self) -> Mapping[str, str]:
        """What has to be set for it."""
        return {_LINE: self.line} if self.line else {}

    def test_file(self, promises: tuple[str, ...]) -> str:
        """A test file that holds it to `promises`, beside a copy of the package."""
        tensors = WAYS[self.way].tensors_only or self.weights_only
        return _FILE.format(
            way=self.way,
            weights_only=self.weights_only,
            name=CLASS,
            takes="tensors" if tensors else "objects",
            keeps=("*.pt",) if WAYS[self.way].gather == "gather_and_save_checkpoint" else (),
            promises=set(promises),
        )


ADAPTERS: dict[str, Asked] = {
    **{name: Asked(name) for name in WAYS},
    **{f"{name} on gloo": Asked(name, line="gloo") for name in ("all_gather_list", "gather", "gather_object")},
    "gather on two machines": Asked("gather", line="split"),
    **{
        f"{name} with weights_only": Asked(name, weights_only=True) for name in ("all_gather_list", "all_gather_object")
    },
}
