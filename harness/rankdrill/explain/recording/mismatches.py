"""Calls of one number in which ranks did not agree: what contracts would have found while the job ran."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy

from rankdrill.diagnosis import Finding, Wait
from rankdrill.diagnosis.calls.contracts import break_in
from rankdrill.diagnosis.groups import members_in
from rankdrill.diagnosis.messages.contracts import break_in_message
from rankdrill.diagnosis.messages.traffic import MessageEnd, Traffic
from rankdrill.explain.recording.evidence import Evidence
from rankdrill.explain.recording.posts import post_of, posts_of
from rankdrill.explain.recording.raw import talks
from rankdrill.ledger import Half, LedgerView, MessageCall, Post, Record, State
from rankdrill.step import BY_TWOS, DEFAULT_GROUP, NEW_GROUP, Kind

__all__ = ["Mismatch", "first_mismatch", "odd_inputs"]

_EQUAL = "all_gather"  # in which ranks nearly always bring equally much
MOST_TALKED = 4096  # of messages, the newest, that are compared


@dataclass(frozen=True)
class Mismatch:
    """The first call in which ranks disagree. `from_start`: nothing is left of what was before it."""

    finding: Finding
    at_ns: int
    from_start: bool = False


def first_mismatch(evidence: Evidence) -> Mismatch | None:
    """The earliest of all groups, and messages; None where all that can be compared agrees."""
    found = [*_in_collectives(evidence), *_in_new_groups(evidence), *_in_messages(evidence)]
    return min(found, key=lambda one: one.at_ns, default=None)


def _in_collectives(evidence: Evidence) -> Iterator[Mismatch]:
    groups = {group for each in evidence.ranks.values() for group in each.calls}
    for group in sorted(groups):
        number = _first_apart(evidence, group)
        if number is None:
            continue
        records = _records(evidence, group, number)
        members = _members(evidence, group) or tuple(sorted(records))
        posts = posts_of({rank: record for rank, record in records.items() if rank in members})
        finding = break_in(posts, members, group, number)
        if finding is not None:
            firsts = [int(each.calls[group]["sequence"][0]) for each in evidence.ranks.values() if group in each.calls]
            at_ns = min(record.begin_ns for record in records.values())
            yield Mismatch(finding, at_ns, number > 0 and number <= max(firsts))


def _first_apart(evidence: Evidence, group: str) -> int | None:
    """The least number of a call of `group` that two ranks made differently."""
    numbers, digests = numpy.empty(0, "<i8"), numpy.empty(0, "<u8")
    apart: list[int] = []
    for each in evidence.ranks.values():
        calls = each.calls.get(group)
        if calls is None:
            continue
        _, at, to = numpy.intersect1d(numbers, calls["sequence"], assume_unique=True, return_indices=True)
        odd = digests[at] != calls["digest"][to]
        if odd.any():
            apart.append(int(numbers[at][odd].min()))
        new = numpy.isin(calls["sequence"], numbers, assume_unique=True, invert=True)
        numbers = numpy.concatenate([numbers, calls["sequence"][new]])
        digests = numpy.concatenate([digests, calls["digest"][new]])
    return min(apart, default=None)


def _records(evidence: Evidence, group: str, number: int) -> dict[int, Record]:
    found = {}
    for rank, each in evidence.ranks.items():
        calls = each.calls.get(group)
        if calls is None:
            continue
        index = calls["index"][calls["sequence"] == number]
        if len(index):
            found[rank] = record_at(each.full, int(index[0]))
    return found


def record_at(view: LedgerView, index: int) -> Record:
    """The whole record `index` of `view`."""
    place = index - view.first
    return replace(view, raw=view.raw[place : place + 1], first=index).records[0]


def _members(evidence: Evidence, group: str) -> tuple[int, ...]:
    if group == DEFAULT_GROUP:
        return tuple(range(evidence.world_size))
    for each in evidence.ranks.values():
        for made in each.recorded.groups:
            if made.label == group:
                return members_in(each.view).get(group, ())
    return ()


def _in_new_groups(evidence: Evidence) -> Iterator[Mismatch]:
    made: dict[tuple[str, int], dict[int, Record]] = {}
    for rank, each in evidence.ranks.items():
        for record in each.view.where(lambda kind, state: kind is Kind.GROUP):
            if record.step.op == NEW_GROUP and record.state is not State.RAISED:
                made.setdefault((record.step.target, record.step.sequence), {})[rank] = record
    for (group, number), records in sorted(made.items()):
        if len({record.step.fingerprint for record in records.values()}) < 2:
            continue
        posts = [post_of(rank, record) for rank, record in sorted(records.items())]
        finding = break_in(posts, tuple(range(evidence.world_size)), group, number)
        if finding is not None:
            yield Mismatch(finding, min(record.begin_ns for record in records.values()))
            return


def _in_messages(evidence: Evidence) -> Iterator[Mismatch]:
    if not any(talks(each.view) for each in evidence.ranks.values()):
        return
    ends: dict[MessageCall, dict[Half, MessageEnd]] = {}
    traffic = Traffic({rank: each.view for rank, each in evidence.ranks.items()})
    for end in (end for of_rank in traffic.ends.values() for end in of_rank[-MOST_TALKED:]):
        half = Half.SEND if end.sends else Half.RECV
        ends.setdefault(_call(end), {})[half] = end
    apart = [
        call
        for call, halves in ends.items()
        if len(halves) == 2 and halves[Half.SEND].record.step.digest != halves[Half.RECV].record.step.digest
    ]
    if not apart:
        return
    first = min(apart, key=lambda call: min(end.record.begin_ns for end in ends[call].values()))
    seen = [(call, half, _post(end)) for call, halves in ends.items() for half, end in halves.items()]
    near = [one for one in seen if one[0].group == first.group]
    halves = ends[first]
    group = halves[Half.SEND].stream.group
    sent, received = _post(halves[Half.SEND]), _post(halves[Half.RECV])
    finding = break_in_message(first, sent, received, near, group)
    if finding is not None:
        yield Mismatch(finding, min(end.record.begin_ns for end in halves.values()))


def _call(end: MessageEnd) -> MessageCall:
    group = zlib.crc32(end.stream.group.encode())
    return MessageCall(group, end.stream.source, end.stream.target, end.stream.tag, end.number)


def _post(end: MessageEnd) -> Post:
    """Without the op, in which the two ends differ."""
    post = post_of(end.rank, end.record)
    return replace(post, marks=(0, *post.marks[1:]))


def odd_inputs(evidence: Evidence, waiting: Mapping[int, Wait]) -> Finding | None:
    """What does not fit in a call that all have come to and that does not end, by what ranks bring to it.

    They may bring different sizes if each expects the others'; what they expect is not recorded.
    """
    for wait in sorted(waiting.values(), key=lambda each: each.record.begin_ns):
        step = wait.record.step
        if wait.missing or step.op not in BY_TWOS or step.sequence < 0:
            continue
        records = _records(evidence, step.target, step.sequence)
        members = _members(evidence, step.target) or tuple(sorted(records))
        there = [(rank, record) for rank, record in sorted(records.items()) if rank in members]
        posts = [post_of(rank, record, sized=step.op == _EQUAL) for rank, record in there]
        finding = break_in(posts, members, step.target, step.sequence)
        if finding is not None:
            return finding
    return None
