"""The files of a record, read: what each process told of itself, and its ledger. Any of it may be torn, or missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

from rankdrill.errors import LedgerError, UsageError
from rankdrill.host import boot_id, pid_namespace, started_at
from rankdrill.ledger import UNKNOWN_RANK, LedgerReader
from rankdrill.step import DEFAULT_GROUP

__all__ = ["End", "GroupMade", "Recorded", "files_in", "is_alive", "is_recording", "read_directory", "read_to_its_end"]

LEDGER, LOG = ".ledger", ".log"
FORMAT, VERSION = "rankdrill record", 1
MOST_FILES = 1 << 17  # of one directory that are looked at
MOST_LOG_BYTES = 16 << 20
MOST_TEXT = 4096
MOST_RANK = 1 << 24


@dataclass(frozen=True)
class GroupMade:
    """A process group, made after `record` steps of which `members` speaks as ledgers do; `run` names the job."""

    label: str
    members: tuple[str, ...]
    backend: str
    record: int
    rank: int | None = None
    world_size: int | None = None
    run: str = ""
    calls_before: int = 0


@dataclass(frozen=True)
class End:
    """How a process said that it ends, after `record` steps: ``exit``, ``raised``, ``closed``, or the call it made.

    `lost`: it raised because it lost another rank, or waited in vain. `ddp` is what DistributedDataParallel said.
    """

    how: str
    at_ns: int
    record: int
    error: str = ""
    file: str = ""
    line: int = 0
    function: str = ""
    lost: bool = False
    ddp: str = ""


@dataclass(frozen=True)
class Recorded:
    """What one process left. `trouble` says what of it is not to be had."""

    name: str
    about: Mapping[str, Any] = field(default_factory=dict)
    groups: tuple[GroupMade, ...] = ()
    end: End | None = None
    reader: LedgerReader | None = None
    trouble: str = ""
    told_ns: int = 0  # its newest line
    place: Path | None = None

    @property
    def job(self) -> GroupMade | None:
        """Its newest default group."""
        return next((group for group in reversed(self.groups) if group.label == DEFAULT_GROUP), None)

    @property
    def rank(self) -> int | None:
        if self.job is not None and self.job.rank is not None:
            return self.job.rank
        if self.reader is not None and self.reader.rank != UNKNOWN_RANK:
            return int(self.reader.rank)
        return self.number("rank")

    @property
    def world_size(self) -> int:
        """0 where nobody has said it."""
        if self.job is not None and self.job.world_size:
            return self.job.world_size
        return (self.reader.world_size if self.reader is not None else 0) or self.number("world_size") or 0

    @property
    def pid(self) -> int:
        return self.number("pid") or (self.reader.pid if self.reader is not None else 0)

    @property
    def start_ns(self) -> int:
        """Since 1970, by its own machine."""
        return self.number("realtime_ns") or (self.reader.start_ns if self.reader is not None else 0)

    @property
    def clock_ns(self) -> int:
        """What is added to its machine's monotonic clock to have the time since 1970, by its own account."""
        if self.reader is not None and None in (self.number("realtime_ns"), self.number("monotonic_ns")):
            return int(self.reader.start_ns) - self.reader.start_monotonic_ns
        return self.start_ns - (self.number("monotonic_ns") or 0)

    def number(self, name: str) -> int | None:
        return _integer(self.about.get(name))

    def text(self, name: str) -> str:
        return _text(self.about.get(name))

    @property
    def hang_after(self) -> float | None:
        """After how many seconds without a step its watchdog is to say so; None where it asked for none."""
        found = self.about.get("hang_after")
        return float(found) if isinstance(found, int | float) and 0 < found < inf else None

    @property
    def launcher(self) -> Mapping[str, str]:
        found = self.about.get("launcher")
        if not isinstance(found, dict):
            return {}
        return {name: value for name, value in found.items() if isinstance(value, str)}

    @property
    def parent(self) -> tuple[int, ...]:
        found = self.about.get("parent")
        return tuple(part for part in found if isinstance(part, int)) if isinstance(found, list) else ()


def is_alive(one: Recorded) -> bool | None:
    """Whether its process is there; None where nobody here can say."""
    if one.text("boot") != boot_id() or one.text("pids") != pid_namespace() or not one.pid:
        return None
    return started_at(one.pid) == one.number("started")


def is_recording(directory: str | Path) -> bool:
    """Whether `directory` holds what `rankdrill.record` wrote."""
    place = Path(directory)
    if not place.is_dir():
        return False
    return any(True for _ in place.glob(f"*{LEDGER}")) or any(_is_log(path) for path in place.glob(f"*{LOG}"))


def files_in(directory: str | Path) -> frozenset[Path]:
    """The ledgers and logs that are there now; raises `UsageError` where that is no directory."""
    try:
        return frozenset(path for path in Path(directory).iterdir() if path.suffix in (LEDGER, LOG))
    except OSError as error:
        raise UsageError(f"{directory} cannot be read: {error.strerror}") from error


def read_directory(directory: str | Path) -> list[Recorded]:
    """What each process left in `directory`; raises `UsageError` where that is none."""
    names = sorted({path.stem for path in files_in(directory)})
    return [_read(Path(directory), name) for name in names[:MOST_FILES]]


def read_to_its_end(one: Recorded) -> Recorded:
    """`one`, whose process is gone by now, with what it said of its end after it was read."""
    if one.end is not None or one.place is None:
        return one
    return replace(one, end=_read(one.place, one.name).end)


def _read(place: Path, name: str) -> Recorded:
    trouble: list[str] = []
    reader: LedgerReader | None = None
    try:
        reader = LedgerReader(place / f"{name}{LEDGER}")
    except FileNotFoundError:
        trouble.append("has no ledger")
    except LedgerError as error:
        trouble.append(str(error))
    except (OSError, ValueError) as error:
        trouble.append(f"has a ledger that cannot be read ({error})")
    lines = _lines(place / f"{name}{LOG}")
    if not lines or lines[0].get("format") != FORMAT:
        trouble.append("has no log")
        return Recorded(name, reader=reader, trouble="; ".join(trouble), place=place)
    about, *rest = lines
    version = about.get("version")
    if not isinstance(version, int) or version > VERSION:
        trouble.append(f"has a log of version {version!r}, of which this rankdrill knows {VERSION}")
    groups = tuple(made for line in rest if (made := _group(line)) is not None)
    end = next((end for line in reversed(rest) if (end := _end(line)) is not None), None)
    told = max((_number(line.get("at_ns")) for line in lines), default=0)
    return Recorded(name, about, groups, end, reader, "; ".join(trouble), told, place)


def _is_log(path: Path) -> bool:
    lines = _lines(path)
    return bool(lines) and lines[0].get("format") == FORMAT


def _lines(path: Path) -> list[dict[str, Any]]:
    """Those that were written to their end."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_LOG_BYTES)
    except OSError:
        return []
    found = []
    for line in raw.split(b"\n")[:-1]:
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(told, dict):
            found.append(told)
    return found


def _group(line: Mapping[str, Any]) -> GroupMade | None:
    label, members = line.get("group"), line.get("members")
    if not isinstance(label, str) or not isinstance(members, list):
        return None
    return GroupMade(
        label[:MOST_TEXT],
        tuple(part for part in members if isinstance(part, str)),
        _text(line.get("backend")),
        _number(line.get("record")),
        _place(line.get("rank")),
        _place(line.get("world_size")),
        _text(line.get("run")),
        _number(line.get("calls_before")),
    )


def _end(line: Mapping[str, Any]) -> End | None:
    how = line.get("end")
    if not isinstance(how, str):
        return None
    text = [_text(line.get(name)) for name in ("error", "file", "function")]
    at, record = _number(line.get("at_ns")), _number(line.get("record"))
    lost, ddp = line.get("lost") is True, _text(line.get("ddp"))
    return End(how[:MOST_TEXT], at, record, text[0], text[1], _number(line.get("line")), text[2], lost, ddp)


def _integer(value: object) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> int:
    return _integer(value) or 0


def _place(value: object) -> int | None:
    number = _integer(value)
    return number if number is not None and 0 <= number <= MOST_RANK else None


def _text(value: object) -> str:
    return value[:MOST_TEXT] if isinstance(value, str) else ""
