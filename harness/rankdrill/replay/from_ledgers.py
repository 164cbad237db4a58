"""From ledgers to a score: what ranks wrote down, as calls that can be made again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rankdrill.diagnosis import Finding
from rankdrill.ledger import LedgerView, Record, State, members_of
from rankdrill.replay.findings import as_told_of
from rankdrill.replay.score import Call, End, Part, Score, Tensor
from rankdrill.step import ANYBODY, DDP_BUCKET, DEFAULT_GROUP, FILE_LOCKS, NEW_GROUP, NOBODY, Kind, Step

__all__ = ["folded", "score_of"]

_TENSOR = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
_MORE = re.compile(r"\+(\d+) more")
_ROOT = re.compile(r"\broot=(\d+)")
_SPLITS = re.compile(r"sent as (\S+) received as (\S+)")
_REDUCE_OPS = frozenset({"sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"})
_LOCKS = frozenset({"LOCK_EX", "LOCK_SH", "LOCK_UN"})
_NEVER_WAITED = "NeverWaited"  # of a message whose handle was dropped
OF_OBJECTS = frozenset({"all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"})
"""Public functions that are several collectives each: played as one call."""
_OF_A_LIST = "broadcast_object_list"  # what it sends first are the sizes, as many as there are objects


def score_of(
    views: Mapping[int, LedgerView],
    size: int,
    verdict: str = "",
    ends: Mapping[int, End] | None = None,
    sides: Sequence[Sequence[int]] = (),
    asked: Sequence[int] | None = None,
    finding: Finding | None = None,
) -> Score:
    """The score of what ranks wrote down: `views` by rank, of a world of `size`.

    `ends` says by rank how it ended, where that is known; a rank without is in its last call or has returned. Ranks
    without a ledger have no part. `sides` are the ranks that did what cannot go together. Of others than those `asked`
    for, if they are given, nothing is looked at. A `finding` tells what no ledger has of calls that were broken off.
    """
    asked = range(size) if asked is None else asked
    views = {rank: views[rank] for rank in asked if rank in views}
    groups = _groups(views.values())
    cut = [f"rank {rank} wrote nothing down" for rank in asked if rank not in views]
    cut += [
        f"the first {view.dropped} steps of rank {rank} are no longer known"
        for rank, view in sorted(views.items())
        if view.dropped
    ]
    parts = []
    for rank, view in sorted(views.items()):
        calls = tuple(folded(list(_calls(view.records, groups, size))))
        parts.append(Part(rank, calls, (ends or {}).get(rank, End("" if view.last_open else "returned"))))
    made = {name: members for name, members in groups.items() if name != DEFAULT_GROUP}
    if finding is not None:
        parts = list(as_told_of(parts, finding))
    return Score(size, tuple(parts), made, verdict, tuple(cut), sides=tuple(map(tuple, sides)))


def _groups(views: Iterable[LedgerView]) -> dict[str, tuple[int, ...]]:
    """The members of each group, in the order in which they were made."""
    found: dict[str, tuple[int, ...]] = {}
    for view in views:
        for group in view.groups:
            found.setdefault(group.label, group.ranks())
    return found


def _calls(records: Sequence[Record], groups: Mapping[str, tuple[int, ...]], size: int) -> Iterator[Call]:
    for record in records:
        step = record.step
        if step.kind is Kind.GROUP and step.op == NEW_GROUP:
            members = members_of(step.fingerprint) or ()
            yield Call(NEW_GROUP, step.target, members=members, site=_site(record), waits=True)
        elif step.kind is Kind.STORE:
            value = step.fingerprint if step.fingerprint[:1] in "'+" else ""
            yield Call(step.op, key=step.target, value=value, site=_site(record))
        elif step.op in FILE_LOCKS and step.fingerprint in _LOCKS:
            yield Call(step.op, key=step.target, value=step.fingerprint, site=_site(record))
        elif step.kind is Kind.COLLECTIVE and step.op != "abort":
            yield _collective(record, groups.get(step.target) or tuple(range(size)))


def _collective(record: Record, members: tuple[int, ...]) -> Call:
    step, mark = record.step, record.step.fingerprint
    root = _ROOT.search(mark)
    splits = _SPLITS.search(mark)
    place = int(root[1]) if root else NOBODY
    return Call(
        step.op,
        step.target,
        tensors=_tensors(mark),
        reduce_op=next((word for word in mark.split() if word in _REDUCE_OPS), ""),
        root=members[place] if 0 <= place < len(members) else NOBODY,
        peer=_peer(step),
        tag=step.message.tag if step.message is not None else 0,
        sends=_lengths(splits[1]) if splits else (),
        receives=_lengths(splits[2]) if splits else (),
        via=step.site.via if step.site is not None else "",
        site=_site(record),
        waits=_is_waited(record),
        number=step.sequence,
    )


def _is_waited(record: Record) -> bool:
    site = record.step.site
    if site is not None and site.via.startswith(DDP_BUCKET):
        return True  # where C++ does, nobody sees it
    return record.state is not State.ISSUED and record.error != _NEVER_WAITED


def _peer(step: Step) -> int:
    """Whom a message is for, or from: of one that came from whoever sent, not who that was."""
    if step.message is None:
        return NOBODY
    return ANYBODY if step.is_from_anybody else step.message.peer


def _tensors(mark: str) -> tuple[Tensor, ...]:
    words = mark.split(" ", 1)[0]
    shown = [Tensor(dtype, tuple(map(int, filter(None, shape.split(","))))) for dtype, shape in _TENSOR.findall(words)]
    more = _MORE.search(mark)  # which are as the last one, for all that is known
    return (*shown, *(shown[-1:] * int(more[1]) if more and int(more[1]) < 1 << 12 else ()))


def _lengths(text: str) -> tuple[int, ...]:
    return () if text == "even" else tuple(int(each) for each in text.split(",") if each.isdigit())


def _site(record: Record) -> str:
    site = record.step.site
    return f"{site.path}:{site.line}" if site is not None else ""


def folded(calls: Sequence[Call]) -> Iterator[Call]:
    """The calls, of which those that one call of a function for objects made are one."""
    at = 0
    while at < len(calls):
        first = calls[at]
        if first.via not in OF_OBJECTS:
            yield first
            at += 1
            continue
        many = 1
        while at + many < len(calls) and many < _inside(first) and _same_line(calls[at + many], first):
            many += 1
        root = max(call.root for call in calls[at : at + many])
        counts = first.tensors if first.via == _OF_A_LIST else ()
        yield Call(first.via, first.group, counts, root=root, via=first.via, site=first.site, number=first.number)
        at += many


def _inside(call: Call) -> int:
    """How many collectives a function for objects makes (torch 2.6 to 2.13)."""
    return 3 if call.via == "scatter_object_list" else 2


def _same_line(call: Call, first: Call) -> bool:
    return (call.via, call.site, call.group) == (first.via, first.site, first.group)
