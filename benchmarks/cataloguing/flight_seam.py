"""What the flight recorder needs of torch that is not public: its dump, the groups of this rank, and its analyzer.

torch 2.13 documents the recorder for NCCL. Of gloo it records collectives, with their sizes, types and Python frames,
without being asked to: ``TORCH_FR_BUFFER_SIZE``, by its older name ``TORCH_NCCL_TRACE_BUFFER_SIZE``, is how many, 2000
unless set, and 0 for none. The rest is not there for gloo:

- Nobody dumps when a call fails or takes too long, whatever ``TORCH_FR_DUMP_TEMP_FILE`` says: that is NCCL's watchdog.
- Sends, receives and monitored barriers are not recorded, reduce operators and roots nowhere, a reduce-scatter as the
  all-reduces that it is made of. All calls stay in the state ``scheduled``.
- ``pg_config`` has one group without a name, and with none or some of its ranks, whatever groups there are. The
  analyzer ends with a `KeyError` at the first call of any such dump. So `trace` puts this rank's groups there, as dumps
  of NCCL have them, and `mismatches` those that were destroyed since: without that, no more is said than by plain gloo.

`tests/catalogue/test_flight_seam.py` fails where a new torch changes any of this. What is private is asked for when it
is needed, since the other tools run with a torch that has none of it.
"""

from __future__ import annotations

import gc
import logging
import pickle
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d

__all__ = ["BUFFER", "PREFIX", "Mismatch", "is_there", "mismatches", "trace"]

BUFFER = {"TORCH_FR_BUFFER_SIZE": "2000"}  # torch's own default, said aloud
PREFIX = "rank_"  # of the files that the analyzer reads, followed by the rank


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A call of `group` in which the analyzer finds something wrong.

    `expected` are the group's ranks, `absent` those that did not make the call; `undumped` have left no dump, for which
    it cannot decide. `errors` has the type of its mismatch for each rank that is called a culprit, `frames` the same
    ranks' stacks; `shown` is the stack of the rank that the others were compared with.
    """

    group: str
    expected: frozenset[int]
    absent: frozenset[int] = frozenset()
    undumped: frozenset[int] = frozenset()
    errors: Mapping[int, str] = field(default_factory=dict)
    frames: Mapping[int, str] = field(default_factory=dict)
    shown: str = ""
    call: str = ""


def is_there() -> bool:
    """Whether this torch records gloo's calls and has the analyzer."""
    return hasattr(_distributed_c10d, "_dump_fr_trace") and find_spec("torch.distributed.flight_recorder") is not None


def trace() -> bytes:
    """This rank's dump, a pickle as the analyzer reads it, with the groups that the rank has by now."""
    # The public debug server of torch 2.13 gives JSON alone, which the analyzer does not read.
    dump = pickle.loads(_distributed_c10d._dump_fr_trace())  # type: ignore[attr-defined]  # torch has no stub of it
    dump["pg_config"] = _groups()
    return pickle.dumps(dump)


def mismatches(directory: Path) -> tuple[list[Mismatch], str]:
    """What the analyzer finds in the dumps in `directory`, in its order, and what it prints."""
    with _printed() as lines, _collected(), warnings.catch_warnings():
        # What it asks of `typing` when it is imported is deprecated from Python 3.13 on.
        warnings.filterwarnings("ignore", r".*'type_params' parameter of 'typing._eval_type'", DeprecationWarning)
        from torch.distributed.flight_recorder.components.builder import build_db
        from torch.distributed.flight_recorder.components.config_manager import JobConfig
        from torch.distributed.flight_recorder.components.loader import read_dir

        # As `torchfrtrace DIRECTORY -p rank_ --allow-incomplete-ranks` does: ranks that were killed have left no dump.
        arguments = JobConfig().parse_args([str(directory), "-p", PREFIX, "--allow-incomplete-ranks"])
        details, version = read_dir(arguments)
        _complete(details)
        found = build_db(details, arguments, version).collectives
    dumped = frozenset(dump["rank"] for dump in details.values())
    return [wrong for each in found if (wrong := _wrong_in(each, dumped)) is not None], "\n".join(lines)


def _groups() -> dict[str, dict[str, str]]:
    from torch.distributed.distributed_c10d import (
        _world,  # no public list of groups: `get_process_group_ranks` takes one
    )

    known = list(_world.pg_group_ranks.items())  # the program may be making another
    return {
        group.group_name: {"name": group.group_name, "desc": group.group_desc, "ranks": str(sorted(ranks))}
        for group, ranks in known
        if isinstance(group, dist.ProcessGroup)  # of groups that the rank is not in there is one placeholder
    }


def _complete(details: Mapping[str, dict[str, Any]]) -> None:
    """Put in the groups that a rank has destroyed: as another rank has them, or with those who called in them."""
    known: dict[str, dict[str, str]] = {}
    callers: dict[tuple[str, str], set[int]] = {}
    for dump in details.values():
        known |= dump["pg_config"]
        for entry in dump["entries"]:
            callers.setdefault(tuple(entry["process_group"]), set()).add(dump["rank"])
    for (name, described), ranks in callers.items():
        known.setdefault(name, {"name": name, "desc": described, "ranks": str(sorted(ranks))})
    for dump in details.values():
        for entry in dump["entries"]:
            name = entry["process_group"][0]
            dump["pg_config"].setdefault(name, known[name])


def _wrong_in(call: Any, dumped: frozenset[int]) -> Mismatch | None:
    """A `Collective` of the analyzer; one with absent ranks has passed its check."""
    expected, absent = frozenset(call.expected_ranks), frozenset(call.missing_ranks or ())
    culprits = call.mismatch_collectives or {}
    undumped: frozenset[int] = frozenset() if absent or culprits else expected - dumped
    if not (absent or culprits or undumped):
        return None
    return Mismatch(
        group=call.pg_desc,
        expected=expected,
        absent=absent,
        undumped=undumped,
        errors={rank: other.type_of_mismatch.state.name for rank, other in culprits.items()},
        frames={rank: _shown(other.collective_frames) for rank, other in culprits.items()},
        shown=_shown(call.collective_frames),
        call=f"{call.collective_name} #{call.collective_seq_id}",
    )


def _shown(frames: list[dict[str, Any]]) -> str:
    from torch.distributed.flight_recorder.components.utils import format_frames

    return format_frames(frames)


@contextmanager
def _printed() -> Iterator[list[str]]:
    """What the analyzer's logger says meanwhile, which else goes to standard error."""
    lines: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        lines.append(record.getMessage())
        return False

    logger = logging.getLogger("Flight Recorder")
    logger.addFilter(keep)
    try:
        yield lines
    finally:
        logger.removeFilter(keep)


@contextmanager
def _collected() -> Iterator[None]:
    """The analyzer's loader switches the garbage collector off, and leaves it so."""
    try:
        yield
    finally:
        gc.enable()
