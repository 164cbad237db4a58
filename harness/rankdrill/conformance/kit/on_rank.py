"""The rank's side of a question: make the calls that the script says, and tell what came and what changed."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import dataclass, replace
from typing import Any

import torch.distributed as dist

from rankdrill.conformance.adapter import Adapter, Setting
from rankdrill.conformance.kit.hostile import HOSTILE
from rankdrill.conformance.kit.samples import Sample
from rankdrill.conformance.kit.surroundings import Surroundings

__all__ = ["Call", "Heard", "Script", "follow", "import_all"]


@dataclass(frozen=True)
class Call:
    """One call of the gather, by the ranks `members`, all if None; `late` ranks come to it so many seconds later.

    Rank `spoils` of the group contributes what `HOSTILE` has under `spoiled`, instead of what the sample says.
    """

    sample: Sample
    turn: int
    members: tuple[int, ...] | None = None
    late: tuple[tuple[int, float], ...] = ()
    spoils: int | None = None
    spoiled: str = ""


@dataclass(frozen=True)
class Script:
    """The calls of one run, in order. With `watched` it is told what they changed in the process."""

    adapter: Adapter
    calls: tuple[Call, ...]
    directory: str
    timeout: float
    watched: bool = False


@dataclass(frozen=True)
class Heard:
    """What a rank has to say of one call: where the result is `wrong`, or which `error` it raised, as text."""

    call: int
    wrong: str = ""
    error: str = ""


def import_all(adapter: Adapter) -> None:
    """Nothing but what it takes to have the adapter here: its modules are imported then."""


def follow(script: Script) -> tuple[tuple[Heard, ...], tuple[str, ...]]:
    """Make the calls; what is raised is heard, not raised. Then what changed, in words."""
    rank, size = dist.get_rank(), dist.get_world_size()
    groups: dict[tuple[int, ...] | None, Any] = {None: dist.group.WORLD}
    for members in dict.fromkeys(call.members for call in script.calls):
        if members is not None:
            groups[members] = dist.new_group(list(members))
    surroundings = Surroundings.now() if script.watched else None
    if surroundings is not None:
        first = replace(script.calls[0], spoils=None, turn=len(script.calls))
        _call(script, first, tuple(range(size)), groups[None])
        surroundings.settle()
    heard = []
    for number, call in enumerate(script.calls):
        members = call.members or tuple(range(size))
        if rank in members:
            time.sleep(dict(call.late).get(rank, 0.0))
            heard.append(replace(_call(script, call, members, groups[call.members]), call=number))
    gc.collect()
    return tuple(heard), surroundings.changes() if surroundings is not None else ()


def _call(script: Script, call: Call, members: tuple[int, ...], group: Any) -> Heard:
    adapter, own = script.adapter, members.index(dist.get_rank())
    os.makedirs(script.directory, exist_ok=True)
    payloads = [adapter.dress(call.sample.make(giver, len(members), call.turn)) for giver in range(len(members))]
    wanted = adapter.receives(own, payloads)
    payload = _hostile(adapter, call.spoiled) if call.spoils == own else payloads[own]
    setting = Setting(own, len(members), script.directory, adapter.room, script.timeout, group, members, call.turn)
    try:
        got = adapter.call(payload, setting)
    except Exception as error:  # whatever it is, it is what is asked about
        return Heard(0, error=f"{type(error).__name__}: {error}")
    return Heard(0, wrong=adapter.differs(got, wanted) or "")


def _hostile(adapter: Adapter, name: str) -> Any:
    payload = HOSTILE[name]()
    return {"dicts": {"it": payload}, "lists": [payload]}.get(adapter.takes, payload)
