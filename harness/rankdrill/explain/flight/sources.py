"""Which files are dumps, and whose: by their names, as torch gives them, and by how they begin."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankdrill.errors import UsageError
from rankdrill.explain.flight.columns import MOST_RANKS

__all__ = ["Source", "Sources", "find_dumps", "looks_like_dump"]

MOST_FILES = 300_000  # of a directory that are looked at
_DEPTH = 2  # directories below the one that is given: one for each host, say
_HEAD = 4096  # bytes that a file is known by
# Torch writes PREFIX and the rank; people add what kind of file it is.
_NAMED = re.compile(r"^(?P<prefix>.*?)(?P<rank>\d{1,7})(?P<kind>\.(?:json|pkl|pickle|bin|dump|trace|txt))?$")
_SPEAKS = (b"entries", b"pg_config", b"pg_status", b"record_id", b"nccl_comm_state")


@dataclass(frozen=True, slots=True)
class Source:
    """A file that should hold the dump of `rank`."""

    rank: int
    path: Path


@dataclass(frozen=True)
class Sources:
    """The files to read, one for each rank, and what is to be said about others, a sentence each."""

    files: tuple[Source, ...]
    gaps: tuple[str, ...] = ()


def looks_like_dump(path: Path) -> bool:
    """Whether the file begins as a dump does."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return head[:1] in (b"\x80", b"{") and any(word in head for word in _SPEAKS)


def find_dumps(paths: Sequence[Path], prefix: str | None = None) -> Sources:
    """The dumps among `paths`, files and directories; raises `UsageError` where there are none, or of several jobs."""
    by_prefix: dict[str, list[Source]] = {}
    for before, source in _named(paths, prefix):
        by_prefix.setdefault(before, []).append(source)
    if prefix is None and any(path.is_dir() for path in paths):  # else somebody has said which they are
        by_prefix = {
            before: found for before, found in by_prefix.items() if any(looks_like_dump(each.path) for each in found)
        }
    if not by_prefix:
        where = ", ".join(map(str, paths[:3]))
        raise UsageError(
            f"{where}: no dumps of a flight recorder; torch writes one file a rank, named PREFIX and the rank"
        )
    if len(by_prefix) > 1:
        told = ", ".join(repr(each) for each in sorted(by_prefix)[:5])
        raise UsageError(f"dumps of several jobs lie there, with the prefixes {told}; choose with --prefix")
    (found,) = by_prefix.values()
    return _one_each(found)


def _named(paths: Sequence[Path], prefix: str | None) -> Iterator[tuple[str, Source]]:
    """The files whose names end with a rank, with what comes before it."""
    for path in paths:
        if path.is_dir():
            yield from (split for file in _files_in(path) if (split := _split(file, prefix)) is not None)
        elif (split := _split(path, prefix)) is not None:
            yield split
        else:
            raise UsageError(f"{path}: its name does not end with a rank; name it as torch does, rank_0")


def _split(path: Path, prefix: str | None) -> tuple[str, Source] | None:
    match = _NAMED.match(path.name)
    if match is None or (prefix is not None and match["prefix"] != prefix) or int(match["rank"]) >= MOST_RANKS:
        return None
    return match["prefix"], Source(int(match["rank"]), path)


def _files_in(directory: Path, depth: int = _DEPTH) -> Iterator[Path]:
    entries = sorted(directory.iterdir())[:MOST_FILES]
    yield from (entry for entry in entries if entry.is_file() and not entry.name.startswith("."))
    if depth:
        for entry in entries:
            if entry.is_dir() and not entry.is_symlink() and not entry.name.startswith("."):
                yield from _files_in(entry, depth - 1)


def _one_each(found: Sequence[Source]) -> Sources:
    """For each rank the first of its files: pickles have the frames, JSON has not."""
    by_rank: dict[int, list[Source]] = {}
    for source in found:
        by_rank.setdefault(source.rank, []).append(source)
    files: list[Source] = []
    gaps: list[str] = []
    for rank, claimed in sorted(by_rank.items()):
        first, *others = sorted(claimed, key=lambda source: (source.path.suffix == ".json", str(source.path)))
        files.append(first)
        if others:
            names = ", ".join(source.path.name for source in others[:3])
            gaps.append(f"rank {rank} is claimed by {first.path.name}, which is read, and {names}, not read")
    return Sources(tuple(files), tuple(gaps))
