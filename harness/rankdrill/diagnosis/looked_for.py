"""Ranks that look for a file again and again, and sleep in between, which nobody makes: whose mistake that is.

Nobody knows how often they mean to look. But where the deadline finds a rank at nothing else, that is what it waits
for. Who looks for a name that is written in another way than the files that are there looks for the wrong one. Where
each rank makes files that have its number, whoever has not made its own is missed; but not if it looks for one itself
that nobody makes. Where each makes something in the directory that others list, it is whoever has not.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.stores.spelling import same_but_for_spelling, words_of
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import REPLACING, Kind, Site

__all__ = ["Look", "look_of", "looked_for"]

FEWEST = 3  # times that a rank has looked
MOST_LOOKED_BACK = 256  # records
_BESIDE = frozenset({Kind.CLOCK, Kind.MEMORY})  # what a rank does between two looks
_LISTS = frozenset({"listdir", "scandir"})
_LOOKS = _LISTS | {"lstat", "open", "stat"}
_MAKES = re.compile(r"[wxa]|O_CREAT")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Look:
    """Rank `rank` looks for the file `path` again and again at `site`; for more files in it, if it `lists` those."""

    rank: int
    path: str
    site: Site | None
    lists: bool = False


def look_of(rank: int, view: LedgerView, site: Site | None) -> Look | None:
    """What `rank`, which is at `site` and in no step, looks for; None where it does something else."""
    last: dict[str, Record] = {}
    times: Counter[str] = Counter()
    for record in list(view.records)[: -MOST_LOOKED_BACK - 1 : -1]:
        step = record.step
        if step.kind in _BESIDE:
            continue
        in_vain = record.state is State.RAISED
        if step.kind is not Kind.FILE or step.op not in _LOOKS or (step.op == "open" and not in_vain):
            break
        last.setdefault(step.target, record)
        times[step.target] += in_vain or step.op in _LISTS
    missed = [path for path, record in last.items() if record.state is State.RAISED and times[path] >= FEWEST]
    listed = [path for path, record in last.items() if record.step.op in _LISTS and times[path] >= FEWEST]
    found = missed or listed
    return Look(rank, found[0], site, lists=not missed) if found else None


def looked_for(looks: Mapping[int, Look], waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding | None:
    """What is wrong where the ranks of `looks` do nothing else, and those of `waits` wait; None if nobody can say."""
    made = {rank: list(_made_by(view)) for rank, view in enumerate(views)}
    there = {path for paths in made.values() for path in paths}
    if not looks or any(look.path in there and not look.lists for look in looks.values()):
        return None
    names = {rank: {*made[rank], *_found_by(view)} for rank, view in enumerate(views)}
    astray = [rank for rank, look in looks.items() if _is_misnamed(look, looks, names)]
    if astray:
        return _told(astray, [], looks, there)
    if (misnamed := _misnamed_by(looks, made, views)) is not None:
        return _told(misnamed.ranks, [misnamed], looks, there)
    owners = {_owner(look, made) for look in looks.values()}
    if len(owners) != 1 or (owner := owners.pop()) is None or owner in looks:
        return None
    look = next(iter(looks.values()))
    did = "has made no file in it" if look.lists else "has not made it"
    wait = waits.get(owner)
    doing = "" if wait is None else f", and waits in {wait.record.step}"
    site = wait.record.step.site if wait is not None else _last_site(views[owner])
    return _told([owner], [side_of([owner], f"{did}{doing}", [site])], looks, there)


def _is_misnamed(look: Look, looks: Mapping[int, Look], names: Mapping[int, set[str]]) -> bool:
    """Whether more others go by a name like it, written in another way, than ranks look for it."""
    if look.lists:
        return False
    meant = {path for paths in names.values() for path in paths if same_but_for_spelling(path, look.path)}
    forms = {_form(path) for path in meant}
    alike = {each.rank for each in looks.values() if each.path == look.path}
    agree = {rank for rank, each in looks.items() if _form(each.path) in forms and each.path not in meant}
    agree |= {rank for rank, paths in names.items() if not meant.isdisjoint(paths)}
    return len(agree - alike) > len(alike)


def _misnamed_by(
    looks: Mapping[int, Look], made: Mapping[int, Sequence[str]], views: Sequence[LedgerView]
) -> Side | None:
    """The one that has made what several look for under another name."""
    paths = {look.path for look in looks.values()}
    if len(paths) != 1 or len(looks) < 2:
        return None
    (path,) = paths
    found = {rank: name for rank, own in made.items() for name in own if same_but_for_spelling(name, path)}
    if len(found) != 1:
        return None
    ((rank, name),) = found.items()
    site = next(record.step.site for record in reversed(views[rank].records) if record.step.target == name)
    return side_of([rank], f"has made the file {os.path.basename(name)!r}", [site])


def _form(path: str) -> tuple[str, ...]:
    """What is between the numbers, and whether these begin with noughts."""
    padded = ("0" if len(number) > 1 and number.startswith("0") else "" for number in _NUMBER.findall(path))
    return (*words_of(path), *padded)


def _owner(look: Look, made: Mapping[int, Sequence[str]]) -> int | None:
    """The rank that was to make what is looked for, if all others have made theirs."""
    if look.lists:
        without = [rank for rank, paths in made.items() if all(os.path.dirname(path) != look.path for path in paths)]
        without = [rank for rank in without if rank != look.rank or len(without) == 1]
        return without[0] if len(without) == 1 else None
    alike = {rank: [path for path in paths if words_of(path) == words_of(look.path)] for rank, paths in made.items()}
    alike = {rank: paths for rank, paths in alike.items() if paths}
    numbers = [int(number) for number in _NUMBER.findall(look.path)]
    places = [
        place
        for place in range(len(numbers))
        if all(int(_NUMBER.findall(path)[place]) == rank for rank, paths in alike.items() for path in paths)
    ]
    if len(alike) < 2 or len(places) != 1 or numbers[places[0]] not in made:
        return None
    return numbers[places[0]]


def _made_by(view: LedgerView) -> Iterator[str]:
    for record in view.where(lambda kind, state: kind is Kind.FILE and state is State.ENDED):
        step = record.step
        if (step.op == "open" and _MAKES.search(step.fingerprint)) or step.op == "mkdir":
            yield step.target
        elif step.op in REPLACING:
            yield os.path.join(os.path.dirname(step.target), step.fingerprint.removeprefix("to "))


def _found_by(view: LedgerView) -> Iterator[str]:
    for record in view.where(lambda kind, state: kind is Kind.FILE and state is State.ENDED):
        if record.step.op in _LOOKS - _LISTS:
            yield record.step.target


def _last_site(view: LedgerView) -> Site | None:
    return next((record.step.site for record in reversed(view.records) if record.step.site is not None), None)


# --------------------------------------------------------------------------------------------- in words


def _told(culprits: Sequence[int], first: Sequence[Side], looks: Mapping[int, Look], there: set[str]) -> Finding:
    base = os.path.commonpath([os.path.dirname(path) for path in (*there, *(look.path for look in looks.values()))])
    alike: dict[tuple[str, bool], list[int]] = {}
    for rank in sorted(looks, key=lambda rank: (rank not in culprits, rank)):
        alike.setdefault((looks[rank].path, looks[rank].lists), []).append(rank)
    sides = [_side(ranks, looks, os.path.relpath(path, base)) for (path, _), ranks in alike.items()]
    step = f"file {os.path.relpath(looks[min(looks)].path, base)!r}"
    return Finding(FindingKind.STUCK_RANK, step, "file", (*first, *sides), tuple(sorted(culprits)))


def _side(ranks: Sequence[int], looks: Mapping[int, Look], name: str) -> Side:
    s = "s" if len(ranks) == 1 else ""
    did = f"look{s} for the file {name!r} again and again, which nobody has made"
    if looks[ranks[0]].lists:
        did = f"look{s} for more files in {name!r} again and again"
    return side_of(ranks, did, [looks[rank].site for rank in ranks])
