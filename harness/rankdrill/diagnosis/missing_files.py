"""Ranks that look for a file again and again, and do nothing else, which nobody makes: whose mistake that is.

Nobody knows how often they mean to look. But where the deadline finds a rank at nothing else, that is what it waits
for. Who looks for a name that more others go by in other letters looks for the wrong one. Where each rank makes a file
that has its number, and all others have made theirs, whoever has not made its own is missed; and where all others have
made as many in the directory that is listed, whoever has made none. Not who waits there for somebody's message, or
looks for another's file itself.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeAlias

from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.stores.spelling import in_other_letters, words_of
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import REPLACING, Kind, Site

__all__ = ["Look", "look_of", "missing_file"]

FEWEST = 3  # times that a rank has looked; ranks of which one can be the odd one
MOST_MORE = 8  # letters that a name in other letters has more: numbers may be padded
MOST_LOOKED_BACK = 256  # records
_BESIDE = frozenset({Kind.CLOCK, Kind.MEMORY})  # what a rank does between two looks
_LISTS = frozenset({"listdir", "scandir"})
_LOOKS = _LISTS | {"lstat", "open", "stat"}
_MAKES = re.compile(r"[wxa]|O_CREAT")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Look:
    """Rank `rank` looks for the file `path` again and again at `site`; for more files in it, if it `lists` those.

    A file is known by its name and that of its directory, and this by its own: of a long path the ledger has the end.
    """

    rank: int
    path: str
    site: Site | None
    lists: bool = False


def look_of(rank: int, view: LedgerView, site: Site | None) -> Look | None:
    """What `rank`, which is at `site` and in no step, looks for; None where it does something else. Where it is may be
    unknown, and then it is where it looked last.
    """
    last: dict[str, Record] = {}
    times: Counter[str] = Counter()
    for record in list(view.records)[: -MOST_LOOKED_BACK - 1 : -1]:
        step = record.step
        if step.kind in _BESIDE or (step.op in _LOOKS and record.state.open):  # it is just about to look
            continue
        in_vain = record.state is State.RAISED
        if step.kind is not Kind.FILE or step.op not in _LOOKS or (step.op == "open" and not in_vain):
            break
        last.setdefault(step.target, record)
        times[step.target] += in_vain or step.op in _LISTS
    missed = [path for path, record in last.items() if record.state is State.RAISED and times[path] >= FEWEST]
    listed = [path for path, record in last.items() if record.step.op in _LISTS and times[path] >= FEWEST]
    if missed:
        return Look(rank, _end(missed[0]), site or last[missed[0]].step.site)
    return Look(rank, os.path.basename(listed[0]), site or last[listed[0]].step.site, lists=True) if listed else None


def _end(path: str) -> str:
    return "/".join(path.rsplit("/", 2)[-2:])


def missing_file(looks: Mapping[int, Look], waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding | None:
    """What is wrong where the ranks of `looks` do nothing else, and those of `waits` wait; None if nobody can say."""
    if not looks:
        return None
    made = {rank: dict(_made_by(view)) for rank, view in enumerate(views)}
    there = {path for paths in made.values() for path in paths}
    if any(look.path in there and not look.lists for look in looks.values()):
        return None
    by_path: dict[str, list[int]] = {}
    for rank, look in looks.items():
        if not look.lists:
            by_path.setdefault(look.path, []).append(rank)
    goers = _goers(looks, made, views)
    astray = [rank for path, ranks in by_path.items() if _is_misnamed(path, ranks, goers) for rank in ranks]
    if astray:
        return _told(astray, [], looks)
    if (misnamed := _misnamed_by(looks, made)) is not None:
        return _told(misnamed.ranks, [misnamed], looks)
    owners = {_owner(path, made) for path in by_path} | {_without(look, made) for look in looks.values() if look.lists}
    owner = owners.pop() if len(owners) == 1 else None
    wait = waits.get(owner) if owner is not None else None
    if owner is None or (wait is not None and wait.record.step.message is not None):
        return None
    if owner in looks and len({(look.path, look.lists) for look in looks.values()}) > 1:
        return None  # it would come to make its own, did it not look for another one itself
    if owner in looks:
        return _told([owner], [], looks)
    names = sorted({look.path for look in looks.values()})
    did = f"has made no file in {names[0]!r}" if not by_path else f"has not made the file {names[0]!r}"
    doing = "" if wait is None else f", and waits in {wait.record.step}"
    site = wait.record.step.site if wait is not None else _last_site(views[owner])
    return _told([owner], [side_of([owner], f"{did}{doing}", [site])], looks)


_Made: TypeAlias = Mapping[int, Mapping[str, Site | None]]
"""The files that each rank has made, and where."""


def _goers(looks: Mapping[int, Look], made: _Made, views: Sequence[LedgerView]) -> dict[str, set[int]]:
    """Who goes by a name: has made such a file, has found it, or looks for it."""
    goers: dict[str, set[int]] = {}
    for rank, view in enumerate(views):
        own = {looks[rank].path} if rank in looks else set[str]()
        for path in {*made[rank], *_found_by(view), *own}:
            goers.setdefault(path, set()).add(rank)
    return goers


def _is_misnamed(path: str, ranks: Sequence[int], goers: Mapping[str, set[int]]) -> bool:
    """Whether more others go by one name that differs from it in letters alone, or by others in that form.

    Whoever goes by that name too knows it, and means another file.
    """
    likely = [name for name in goers if abs(len(name) - len(path)) <= MOST_MORE]
    meant = [name for name in likely if name != path and in_other_letters(name, path)]
    forms = {_form(name) for name in meant}
    agree = {rank for name in likely if name in meant or _form(name) in forms for rank in goers[name]}
    known = {rank for name in meant for rank in goers[name]}
    return bool(known) and known.isdisjoint(ranks) and len(agree - {*ranks}) > len(ranks)


def _misnamed_by(looks: Mapping[int, Look], made: _Made) -> Side | None:
    """The one that has made what several look for under another name."""
    paths = {look.path for look in looks.values()}
    if len(paths) != 1 or len(looks) < 2:
        return None
    (path,) = paths
    found = [
        (rank, name, site)
        for rank, own in made.items()
        for name, site in own.items()
        if abs(len(name) - len(path)) <= MOST_MORE and in_other_letters(name, path)
    ]
    if len(found) != 1 or found[0][0] in looks:
        return None
    ((rank, name, site),) = found
    return side_of([rank], f"has made the file {os.path.basename(name)!r}", [site])


def _form(path: str) -> tuple[str, ...]:
    """What is between the numbers, and whether these begin with noughts."""
    padded = ("0" if len(number) > 1 and number.startswith("0") else "" for number in _NUMBER.findall(path))
    return (*words_of(path), *padded)


def _owner(path: str, made: _Made) -> int | None:
    """The rank that was to make it, if each other has made the one that has its number in the place of that one's."""
    parts, numbers = _NUMBER.split(path), _NUMBER.findall(path)
    for place, number in enumerate(numbers):
        owner = int(number)
        if owner not in made or len(made) < FEWEST:
            continue
        others = {
            rank: [*numbers[:place], _like(number, rank), *numbers[place + 1 :]] for rank in made if rank != owner
        }
        if all(_joined(parts, each) in made[rank] for rank, each in others.items()):
            return owner
    return None


def _like(number: str, rank: int) -> str:
    return str(rank).zfill(len(number)) if number.startswith("0") and len(number) > 1 else str(rank)


def _joined(parts: Sequence[str], numbers: Sequence[str]) -> str:
    return "".join(part + number for part, number in zip_longest(parts, numbers, fillvalue=""))


def _without(look: Look, made: _Made) -> int | None:
    """The one rank that has made nothing in the directory, where all others have made something, and as many."""
    counts = {rank: sum(os.path.dirname(path) == look.path for path in paths) for rank, paths in made.items()}
    without = [rank for rank, count in counts.items() if not count]
    alike = len({count for count in counts.values() if count}) == 1
    return without[0] if len(without) == 1 and alike and len(made) >= FEWEST else None


def _made_by(view: LedgerView) -> Iterator[tuple[str, Site | None]]:
    for record in view.where(lambda kind, state: kind is Kind.FILE and state is State.ENDED):
        step = record.step
        if step.op == "mkdir" or (step.op == "open" and _MAKES.search(step.fingerprint)):
            yield _end(step.target), step.site
        elif step.op in REPLACING:
            name = os.path.join(os.path.dirname(step.target), step.fingerprint.removeprefix("to "))
            yield _end(name), step.site


def _found_by(view: LedgerView) -> Iterator[str]:
    for record in view.where(lambda kind, state: kind is Kind.FILE and state is State.ENDED):
        if record.step.op in _LOOKS - _LISTS:
            yield _end(record.step.target)


def _last_site(view: LedgerView) -> Site | None:
    return next((record.step.site for record in reversed(view.records) if record.step.site is not None), None)


# --------------------------------------------------------------------------------------------- in words


def _told(culprits: Sequence[int], first: Sequence[Side], looks: Mapping[int, Look]) -> Finding:
    alike: dict[tuple[str, bool, bool], list[int]] = {}
    for rank in sorted(looks, key=lambda rank: (rank not in culprits, rank)):
        alike.setdefault((looks[rank].path, looks[rank].lists, rank in culprits), []).append(rank)
    sides = [_side(ranks, looks, path) for (path, *_), ranks in alike.items()]
    step = f"file {looks[min(looks)].path!r}"
    return Finding(FindingKind.STUCK_RANK, step, "file", (*first, *sides), tuple(sorted(culprits)))


def _side(ranks: Sequence[int], looks: Mapping[int, Look], name: str) -> Side:
    s = "s" if len(ranks) == 1 else ""
    did = f"look{s} for the file {name!r} again and again, which nobody has made"
    if looks[ranks[0]].lists:
        did = f"look{s} for more files in {name!r} again and again"
    return side_of(ranks, did, [looks[rank].site for rank in ranks])
