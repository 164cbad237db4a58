"""What torch's debug server writes of a job on NCCL, without a GPU: its own code, asked about dumps that are made up.

`python -m tests.explain.debug_tables DIRECTORY` writes the files of fixtures/debug_server/nccl; it needs tabulate and a
torch that has the server.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.explain.flights import Flight, Op
from tests.explain.test_flight_verdicts import Case, ranks, rounds, without

__all__ = ["CASES", "tables_of", "write_tables"]

CASES = {
    "apart": Case("a call left out", lambda: Flight(ranks(4, without(2, 7)), ahead=2), ("missing call",), (2,)),
    "absent": Case(
        "a straggler", lambda: Flight(ranks(4, lambda rank: rounds(4)), until={3: 6}), ("missing call",), (3,)
    ),
    "group": Case(
        "a straggler in a group",
        lambda: Flight(
            ranks(4, lambda rank: [*rounds(2), *[Op("all_reduce", "1")] * (rank in (0, 3)), Op("barrier", sizes=())]),
            {"1": ("left half", (0, 2, 3))},
        ),
        ("deadlock",),
        (2,),
    ),
    "ended": Case("all has ended", lambda: Flight(ranks(4, lambda rank: rounds(2))), None),
}
TIMES = ("20261120_120000", "20261120_120100")


def tables_of(flight: Flight) -> str:
    """The text that the server writes of the job of `flight`, whose recorder of gloo's calls is empty."""
    from torch.distributed.debug import _debug_handlers as handlers
    from torch.distributed.debug._frontend import Response

    def fetch_all(endpoint: str, args: str = "", *, timeout: float = 0.0) -> tuple[list[str], list[Any]]:
        addresses = [f"http://host:1/handler/{endpoint}?{args}" for _ in flight.programs]
        said = [_said(flight.dump(rank), endpoint, args) for rank in flight.programs]
        return addresses, [Response(200, json.dumps(each)) for each in said]

    with patch.object(handlers, "fetch_all", fetch_all), contextlib.redirect_stdout(io.StringIO()):
        return str(handlers.FlightRecorderHandler().dump())


def _said(dump: dict[str, Any], endpoint: str, args: str) -> dict[str, Any]:
    active = [entry for entry in dump["entries"] if not entry["retired"] or "onlyactive=true" not in args]
    for entry in active:
        entry.pop("frames")  # torch's JSON has none
    if endpoint == "fr_trace_json":
        dump, active = {**dump, "pg_config": {}}, []
    return {**dump, "entries": active}


def write_tables(flight: Flight, directory: Path) -> Path:
    """The files of two moments."""
    directory.mkdir(parents=True, exist_ok=True)
    for time in TIMES:
        (directory / f"fr_trace_{time}.txt").write_text(tables_of(flight))
    return directory


if __name__ == "__main__":
    for name, case in CASES.items():
        write_tables(case.flight(), Path(sys.argv[1], name))
