"""What a finding tells of calls that no ledger has: how memory lay, or that it was touched, and what was left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rankdrill.diagnosis import Finding, FindingKind, Side
from rankdrill.replay.score import Call, Part, Tensor
from rankdrill.step import NO_SEQUENCE, NOBODY, Site

__all__ = ["NOT_COME_TO", "as_told_of"]

NOT_COME_TO = "not come to"
"""What stands for the rank's line of a call that it should have come to, and did not."""
_CALL = re.compile(r"(?:gave|enters?) (?:\w+'s )?(\w+) #(\d+) on '([^']*)'")
_STRIDED = re.compile(r"(?:a|with) ([a-z]\w*)\[([\d,]*)\](?: with)? strides \(([\d, ]*)\)")
_BROUGHT = re.compile(r" with ([a-z]\w*)\[([\d,]*)\](?: |$)")
_TOUCHED = re.compile(r"(\w+)(?: \w+)? the \w+ of (\w+)(?: #(\d+))? on '([^']*)' before that was waited for")
_UNSET = re.compile(r"without having set '([^']*)' by the only line")
_WRITES = ("wrote", "writes")


def as_told_of(parts: Sequence[Part], finding: Finding) -> Iterator[Part]:
    """The `parts`, with what `finding` knows besides."""
    for part in parts:
        for side, site in _of(part.rank, finding):
            match finding.kind:
                case FindingKind.LAYOUT | FindingKind.SIZE:
                    part = _brought(part, side, site, parts)
                case FindingKind.INPUT_HAZARD:
                    part = _touched(part, side)
                case FindingKind.MISSING_KEY:
                    part = _unset(part, side, site)
        yield part


def _of(rank: int, finding: Finding) -> list[tuple[Side, Site | None]]:
    return [(side, side.sites[side.ranks.index(rank)]) for side in finding.sides if rank in side.ranks]


def _brought(part: Part, side: Side, site: Site | None, parts: Sequence[Part]) -> Part:
    """With the tensor that the rank gave the call that was refused, which it may not have written down."""
    call, tensor = _CALL.search(side.did), _tensor(side.did)
    if call is None or tensor is None:
        return part
    op, number, group = call[1], int(call[2]), call[3]
    those = [at for at, each in enumerate(part.calls) if (each.op, each.group, each.number) == (op, group, number)]
    at = those[0] if those else -1
    if at >= 0:
        made = part.calls[at]
        if tensor.strides or not made.tensors:
            return replace(part, calls=(*part.calls[:at], replace(made, tensors=(tensor,)), *part.calls[at + 1 :]))
        return part
    others = (each for other in parts for each in other.calls if (each.op, each.group) == (op, group))
    alike = next(others, Call(op, group))
    root = 0 if alike.root == NOBODY and op in ("broadcast", "reduce", "scatter", "gather") else alike.root
    where = f"{site.path}:{site.line}" if site is not None else ""
    more = replace(alike, tensors=(tensor,), root=root, site=where, waits=True, number=number, sends=(), receives=())
    return replace(part, calls=(*part.calls, more))


def _tensor(did: str) -> Tensor | None:
    if found := _STRIDED.search(did):
        return Tensor(found[1], _numbers(found[2]), _numbers(found[3]))
    found = _BROUGHT.search(did)
    return Tensor(found[1], _numbers(found[2])) if found else None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.replace(" ", "").split(",") if each)


def _touched(part: Part, side: Side) -> Part:
    """It ends where it touched what the call works on."""
    told = _TOUCHED.search(side.did)
    if told is None:
        return part
    use, name, number, group = told[1], told[2], int(told[3] or NO_SEQUENCE), told[4]
    for at in reversed(range(len(part.calls))):
        call = part.calls[at]
        if call.group == group and name in (call.op, call.via) and number in (NO_SEQUENCE, call.number):
            if number == NO_SEQUENCE and at and part.calls[at - 1].site == call.site and part.calls[at - 1].via == name:
                continue  # of several the first is the one that is under way
            touched = replace(call, touched="wrote" if use in _WRITES else "read", waits=False)
            return replace(part, calls=(*part.calls[:at], touched))
    return part


def _unset(part: Part, side: Side, site: Site | None) -> Part:
    told = _UNSET.search(side.did)
    if told is None:
        return part
    unset = Call("set", key=told[1], site=f"{site.path}:{site.line}" if site is not None else "", waits=False)
    before = bool(part.calls) and not part.end.how  # what it waits in comes behind
    calls = (*part.calls[:-1], unset, part.calls[-1]) if before else (*part.calls, unset)
    return replace(part, calls=calls)
