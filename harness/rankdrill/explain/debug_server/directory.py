"""The directory that the server writes to from time to time: stacks of all ranks, and tables of flight recorders."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from rankdrill.diagnosis import Confidence, name_ranks
from rankdrill.errors import DumpError, UsageError
from rankdrill.explain.debug_server.judged import Moment, judge
from rankdrill.explain.debug_server.lines import with_lines
from rankdrill.explain.debug_server.served import Served
from rankdrill.explain.debug_server.stacks import Stack, stacks_of
from rankdrill.explain.debug_server.tables import Active, active_in, as_dumps
from rankdrill.explain.explanation import Explanation, places_of
from rankdrill.explain.flight.columns import Tables, columns_of
from rankdrill.explain.flight.explained import Read, read_of
from rankdrill.explain.flight.job import Dump, make_job
from rankdrill.explain.flight.load import read_bytes
from rankdrill.explain.flight.sources import looks_like_dump

__all__ = ["explain_debug_directory", "is_debug_directory", "of_stacks", "read_debug_directory"]

MOST_FILES = 300_000  # of the directory that are looked at
MOST_MOMENTS = 4  # of each kind that are read, the newest
_NAMED = re.compile(r"(stacks|fr_trace|torchcomms_fr_trace)_(\d{8}_\d{6})\.txt")
_NOTHING, _NO_CALL = "recorded nothing", "in no call that had begun and not ended"
_TABLE = "--- Collectives ---"
_SECOND = 1_000_000_000


@dataclass(frozen=True)
class _File:
    path: Path
    at_ns: int


def is_debug_directory(path: Path) -> bool:
    """Whether `path` is a directory with files of the server, and without dumps, which say more."""
    return path.is_dir() and any(True for _ in _files(path)) and not _has_dumps(path)


def _has_dumps(path: Path) -> bool:
    files = (file for depth in ("*", "*/*") for file in path.glob(depth))
    return any(file.is_file() and looks_like_dump(file) for file in islice(files, MOST_FILES))


def explain_debug_directory(path: Path) -> Explanation:
    """What `read_debug_directory` explains."""
    return read_debug_directory(path).explanation


def read_debug_directory(path: Path) -> Served:
    """What the files in `path` show of the newest moments: by the tables, if there are any, else by the stacks.

    Raises `UsageError` where they tell of no rank.
    """
    by_kind: dict[str, list[_File]] = {}
    for kind, file in _files(path):
        by_kind.setdefault(kind, []).append(file)
    gaps: list[str] = []
    texts = {kind: list(_read(files, gaps)) for kind, files in by_kind.items()}
    moments = [Moment(at_ns, stacks_of(text)) for at_ns, text in texts.pop("stacks", ())]
    tables = any(_TABLE in text for of in texts.values() for _, text in of)
    if not tables and not any(moment.stacks for moment in moments):
        raise UsageError(f"{path}: no dumps of a flight recorder, nor of torch's debug server any that tells of ranks")
    found = [of for kind in sorted(texts) if texts[kind] and (of := _of_tables(texts[kind])) is not None]
    found.sort(key=lambda each: not each.explanation.causes)
    stacks = moments[-1].stacks if moments else {}
    read = found[0] if found and (found[0].explanation.causes or not moments) else None
    if read is not None:
        explanation = with_lines(read.explanation, stacks)
    else:
        explanation = of_stacks(moments)
        gaps.append(_why_stacks(tables=tables))
    return Served(replace(explanation, source=str(path), gaps=(*gaps, *explanation.gaps)), stacks, read)


def _why_stacks(*, tables: bool) -> str:
    if tables:
        return "no call in the server's tables shows a cause: judged by Python stacks alone"
    return (
        "the server wrote no tables of flight recorders, as with gloo, where its analyzer fails: judged by stacks alone"
    )


def _files(path: Path) -> Iterator[tuple[str, _File]]:
    for number, file in enumerate(path.iterdir()):
        if number >= MOST_FILES:
            return
        match = _NAMED.fullmatch(file.name)
        if match is None:
            continue
        try:
            written = calendar.timegm(time.strptime(match[2], "%Y%m%d_%H%M%S"))
        except ValueError:
            continue
        yield match[1], _File(file, written * _SECOND)


def _read(files: Sequence[_File], gaps: list[str]) -> Iterator[tuple[int, str]]:
    """The newest of `files`, oldest first, each with its time."""
    for file in sorted(files, key=lambda each: each.at_ns)[-MOST_MOMENTS:]:
        try:
            yield file.at_ns, read_bytes(file.path).decode("utf-8", "replace")
        except DumpError as error:
            gaps.append(f"{file.path.name} {error}")


def _of_tables(read: Sequence[tuple[int, str]]) -> Read | None:
    """What the newest tables show; None where they are empty."""
    moments = [(at_ns, active_in(text)) for at_ns, text in read]
    written_ns, rows = moments[-1]
    if not rows:
        return None
    tables = Tables()
    dumps = [
        Dump(rank, f"rank {rank}", columns_of(dump, tables), written_ns=written_ns)
        for rank, dump in sorted(as_dumps(rows, _since(moments)).items())
    ]
    found = read_of(make_job(dumps, tables))
    return replace(found, explanation=_as_tables_tell(found.explanation))


def _as_tables_tell(found: Explanation) -> Explanation:
    """`found` without what it says of dumps: of a rank that is not there nothing had been begun, or all had ended."""
    causes = []
    for cause in found.causes:
        sides = tuple(side for side in cause.finding.sides if not side.did.startswith("called nothing"))
        confidence = Confidence.LIKELY if cause.confidence is Confidence.CERTAIN else cause.confidence
        causes.append(replace(cause, finding=replace(cause.finding, sides=sides), confidence=confidence))
    places = tuple(replace(place, doing=place.doing.replace(_NOTHING, _NO_CALL)) for place in found.places)
    gaps = (gap for gap in found.gaps if _NOTHING not in gap and "were overwritten" not in gap)
    told = "torch's tables have only calls that had not ended, and no types"
    return replace(found, causes=tuple(causes), places=places, gaps=(told, *gaps))


def _since(moments: Sequence[tuple[int, Sequence[Active]]]) -> Mapping[Any, int]:
    """Since when each call of the newest moment has been there without a break."""
    since = {row.key: moments[-1][0] for row in moments[-1][1]}
    still = set(since)
    for at_ns, rows in reversed(moments[:-1]):
        still &= {row.key for row in rows}
        since |= dict.fromkeys(still, at_ns)
    return since


def of_stacks(moments: Sequence[Moment]) -> Explanation:
    """What stacks alone show."""
    if not moments:
        return Explanation("", 0)
    now = moments[-1].stacks
    judged = judge(moments)
    gaps = []
    if silent := [rank for rank, stack in sorted(now.items()) if stack.error]:
        gaps.append(f"{name_ranks(silent)} did not answer the server: {now[silent[0]].error}")
    return Explanation(
        "",
        max(now, default=-1) + 1,
        judged.causes,
        judged.fits,
        judged.victims,
        places_of([(rank, _doing(stack)) for rank, stack in sorted(now.items())]),
        (*gaps, "stacks do not tell groups, numbers or sizes of calls"),
    )


def _doing(stack: Stack) -> str:
    if stack.error:
        return "did not answer"
    return f"in {stack.call or 'no call of torch.distributed'}{stack.where}"
