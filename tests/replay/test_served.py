"""What torch's debug server tells is played again: its tables, its recorders' JSON, and stacks where these are all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rankdrill.cli import main
from tests.explain.debug_tables import CASES
from tests.explain.flights import Flight
from tests.fixtures import fixture

STACK = """\
Current thread 0x00007f00 (most recent call first):
  File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 5000 in all_reduce
  File "/job/train.py", line {line} in main
"""


def replay(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["replay", *map(str, arguments)])


@contextmanager
def served(pages: dict[str, list[str]]) -> Iterator[str]:
    """The address of a server that has on each page what the ranks say, as torch's has."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = pages.get(self.path.strip("/"))
            self.send_response(200 if said else 404)
            self.end_headers()
            parts = (f"<h2>Rank {rank}: http://host</h2>\n<pre>{text}</pre>" for rank, text in enumerate(said or ()))
            self.wfile.write("\n".join(parts).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def as_json(flight: Flight, rank: int) -> str:
    dump = flight.dump(rank)
    for entry in dump["entries"]:
        entry.pop("frames")
    return json.dumps(dump)


def test_the_recorders_of_a_running_job_are_played_with_the_lines_of_its_stacks(tmp_path: Path) -> None:
    flight, test = CASES["apart"].flight(), tmp_path / "test_it.py"
    pages = {
        "fr_trace_nccl_json": [as_json(flight, rank) for rank in range(4)],
        "stacks": [STACK.format(line=70 + (rank == 2)) for rank in range(4)],
    }
    with served(pages) as address:
        done = replay("--as-test", test, address)
    assert done.exit_code == 0, done.output
    assert "there: missing call: 2\nhere:  missing call: 2" in done.output
    written = test.read_text()
    assert "  # /job/train.py:71" in written, "where it is, of which the recorder says nothing"
    assert written.count("/job/train.py:70") == 1


@pytest.mark.parametrize(("name", "verdict"), [("apart", "missing call: 2"), ("absent", "missing call: 3")])
def test_tables_are_played_as_far_as_calls_had_not_ended(name: str, verdict: str) -> None:
    done = replay(fixture("debug_server") / "nccl" / name)
    assert done.exit_code == 0, done.output
    assert f"there: {verdict}\nhere:  {verdict}" in done.output


def test_of_stacks_each_rank_makes_the_call_that_it_is_in(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    done = replay("--as-test", test, fixture("debug_server") / "gloo")
    assert done.exit_code == 0, done.output
    assert "there: missing call: 2\nhere:  missing call: 2" in done.output
    assert "assumed: stacks tell only in which call each rank is" in done.output
    assert test.read_text().count("dist.barrier()") == 1


def test_an_address_at_which_nobody_is_is_one_line() -> None:
    with served({}) as address:
        pass
    done = replay(address)
    assert done.exit_code == 2
    assert "does not answer" in done.output
    assert "Traceback" not in done.output
