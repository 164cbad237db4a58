"""What comes from a debug server, or lies in its directory, is as untrusted as any file."""

from __future__ import annotations

import json
import pickle
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rankdrill.cli import main
from rankdrill.diagnosis import Confidence
from rankdrill.errors import UsageError
from rankdrill.explain.debug_server import explain_debug_directory, explain_server, is_debug_directory, pages
from rankdrill.explain.debug_server.judged import Moment, judge
from rankdrill.explain.debug_server.stacks import Stack, stack_of, stacks_of
from rankdrill.explain.debug_server.tables import MOST_ROWS, active_in
from rankdrill.explain.explanation import Explanation
from tests.explain.flights import Flight, write
from tests.explain.test_flight_verdicts import ranks, rounds, without
from tests.fixtures import fixture

SEED = 7
GLOO = fixture("debug_server") / "gloo"
TABLES = fixture("debug_server") / "nccl" / "apart" / "fr_trace_20261120_120000.txt"
STACKS = sorted(GLOO.glob("stacks_*"))[-1].read_text()
BOUND_S = 20.0
Writes = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def serving(answers: Mapping[str, bytes | Writes]) -> Iterator[str]:
    """A server on this machine that says `answers` by path, and of all others that there is nothing."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path)
            if answer is None:
                self.send_error(404)
            elif callable(answer):
                answer(self)
            else:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def page(bodies: Mapping[int, str | bytes], failed: Mapping[int, int] = {}) -> bytes:
    """As the server of torch 2.13 shows what ranks have answered: it escapes nothing."""
    parts = [b"<!doctype html>\n<section>\n"]
    for rank, body in bodies.items():
        raw = body if isinstance(body, bytes) else body.encode()
        parts.append(b"\n    <h2>Rank %d: http://host:1/handler/x?</h2>\n\n <pre>%s</pre>\n" % (rank, raw))
    for rank, status in failed.items():
        parts.append(
            b"\n    <h2>Rank %d: http://host:1/handler/x?</h2>\n\n"
            b"            <p>Failed to fetch: status=%d</p>\n            <pre>ConnectionError</pre>\n" % (rank, status)
        )
    return b"".join([*parts, b"</section>\n"])


def recorded(flight: Flight) -> dict[int, str]:
    """The recorders of a job that hangs since yesterday, as indented JSON without frames."""
    said = {}
    for rank in flight.programs:
        dump = flight.dump(rank)
        for entry in dump["entries"]:
            entry.pop("frames")
        said[rank] = json.dumps(dump, indent=2)
    return said


SAID = recorded(Flight(ranks(6, without(2, 7))))


def test_older_servers_have_fewer_pages() -> None:
    with serving({"/fr_trace_json": page(SAID)}) as address:
        found = explain_server(address)
    assert found.culprits == (2,)
    assert found.source == address


def test_of_several_recorders_the_one_with_a_cause_is_told() -> None:
    ended = recorded(Flight(ranks(4, lambda rank: rounds(2))))
    with serving({"/fr_trace_json": page(SAID), "/fr_trace_nccl_json": page(ended)}) as address:
        assert explain_server(address).culprits == (2,)
    with serving({"/fr_trace_json": page(ended), "/torchcomms_fr_trace_json": page(SAID)}) as address:
        assert explain_server(address).culprits == (2,)


def test_who_does_not_answer_is_lost() -> None:
    flight = recorded(Flight(ranks(4, lambda rank: rounds(4)), until={3: 6}))
    del flight[3]
    with serving({"/fr_trace_nccl_json": page(flight, {3: 503})}) as address:
        found = explain_server(address)
    (cause,) = found.causes
    assert (str(cause.finding.kind), cause.finding.culprits) == ("lost rank", (3,))
    assert "rank 3 did not answer: status 503" in found.gaps


def test_where_no_recorder_has_anything_two_looks_at_stacks_are_all_there_is() -> None:
    bodies = {rank: stack.partition("===\n")[2] for rank, stack in enumerate(STACKS.split("=== Rank ")[1:])}
    with serving({"/stacks": page(bodies)}) as address:
        found = explain_server(address)
    assert (found.culprits, found.causes[0].confidence) == ((2,), Confidence.LIKELY)
    assert "no recorder has an entry: judged by Python stacks alone" in found.gaps


def test_names_with_html_in_them_are_text() -> None:
    hostile = json.loads(SAID[0])
    for entry in hostile["entries"]:
        entry["process_group"] = ["0", "</pre><script>alert(1)</script>\x1b[31m"]
    with serving({"/fr_trace_json": page(SAID | {0: json.dumps(hostile)})}) as address:
        done = CliRunner().invoke(main, ["explain", address])
    assert done.exit_code in (0, 1)
    assert "\x1b" not in done.output


def test_no_pickle_from_there_runs_anything(tmp_path: Path) -> None:
    target = tmp_path / "was-here"

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (target,)

    with serving({"/fr_trace_json": page(SAID | {3: pickle.dumps({"entries": [Evil()]})})}) as address:
        found = explain_server(address)
    assert not target.exists()
    assert any("the answer of rank 3" in gap and "imports" in gap for gap in found.gaps)


TORN = {
    "cut off": SAID[1][:-30],
    "no JSON": "<html>",
    "no dump": "[]",
    "deep": '{"entries":' * 20_000,
    "another type": '{"entries": 3, "version": []}',
    "nothing": "",
}


@pytest.mark.parametrize("name", TORN)
def test_the_others_are_explained_beside_an_answer_that_is_torn(name: str) -> None:
    with serving({"/fr_trace_json": page(SAID | {1: TORN[name]})}) as address:
        found = explain_server(address)
    assert found.culprits == (2,)
    assert any("rank 1" in gap for gap in found.gaps)


def test_ranks_that_cannot_be_are_left_out() -> None:
    with serving({"/fr_trace_json": page(SAID | {9_999_999: SAID[0]})}) as address:
        assert explain_server(address).world_size == 6


def unending(handler: BaseHTTPRequestHandler) -> None:
    """Says a little, again and again, and never all."""
    handler.send_response(200)
    handler.end_headers()
    try:
        handler.wfile.write(b"<h2>Rank 0: http://host:1/</h2><pre>")
        while True:
            handler.wfile.write(b" " * 4096)
    except OSError:
        pass


def slow(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.01)
    except OSError:
        pass


@pytest.mark.parametrize(
    ("answer", "bound", "value", "said"),
    [
        (unending, "MOST_PAGE", 1 << 20, "it is no page of torch's debug server"),
        (slow, "MOST_S", 0.5, "has not ended after 0 s"),
    ],
)
def test_what_never_ends_is_ended(
    answer: Writes, bound: str, value: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, bound, value)
    with serving({"/fr_trace_nccl_json": answer}) as address, pytest.raises(UsageError, match=said):
        explain_server(address)


def silent(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.settimeout(BOUND_S)
    with suppress(OSError):
        handler.rfile.read(1)  # until the other side goes


def test_who_says_nothing_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "SILENCE_S", 0.3)
    with serving({"/fr_trace_nccl_json": silent}) as address, pytest.raises(UsageError, match="does not answer"):
        explain_server(address)


def test_an_answer_that_is_too_long_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_BYTES", 1 << 20)
    with serving({"/fr_trace_json": page({0: " " * (4 << 20) + SAID[0], **dict(list(SAID.items())[1:])})}) as address:
        found = explain_server(address)
    assert "rank 0 did not answer: more than 1 MiB" in found.gaps
    assert found.culprits == (2,)


def test_nobody_is_sent_elsewhere() -> None:
    asked: list[str] = []

    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", "/there")
        handler.end_headers()

    def there(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        handler.send_error(404)

    with serving({"/fr_trace_json": elsewhere, "/there": there}) as address, pytest.raises(UsageError, match="no page"):
        explain_server(address)
    assert asked == []


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("https://127.0.0.1:1", "is asked by http://HOST:PORT"),
        ("http://127.0.0.1:port", "Port"),
        ("http://127.0.0.1:1", "does not answer"),
        ("http://", "is asked by http://HOST:PORT"),
    ],
)
def test_an_address_that_is_none_is_one_error(address: str, said: str) -> None:
    done = CliRunner().invoke(main, ["explain", address])
    assert done.exit_code == 2
    assert said in done.output


def mutants(text: str) -> Iterator[str]:
    drawn = random.Random(SEED)
    yield from (text[:end] for end in range(0, len(text), max(1, len(text) // 150)))
    for _ in range(350):
        first, end, at = (drawn.randrange(len(text)) for _ in range(3))
        yield text[:at] + text[min(first, end) : max(first, end)] + text[at + drawn.randrange(40) :]


@pytest.mark.parametrize("kind", ["stacks", "fr_trace"])
def test_files_that_are_torn_are_explained_as_far_as_they_go(kind: str, tmp_path: Path) -> None:
    text = STACKS if kind == "stacks" else TABLES.read_text()
    file = tmp_path / f"{kind}_20261120_120000.txt"
    told = 0
    for mutant in mutants(text):
        file.write_text(mutant)
        with suppress(UsageError):  # nothing is left of it
            told += isinstance(explain_debug_directory(tmp_path), Explanation)
    assert told > 100


ROW = "1  0  False  7  0  6  0:x  nccl:y  [[4]]  [[4]]  {0, 1}  started  []"


@pytest.mark.parametrize("line", ["{1: Collective(" * 50_000, "  ".join("x" * 100_000), "0  " * 200_000, "[" * 500_000])
def test_rows_that_are_made_to_take_for_ever_do_not(line: str) -> None:
    began = time.monotonic()
    assert len(active_in(f"--- Collectives ---\n{ROW}  {line}\n{line}\n")) <= 2
    assert time.monotonic() - began < BOUND_S


def test_more_rows_than_any_job_has_are_not_read() -> None:
    assert len(active_in("--- Collectives ---\n" + f"{ROW}\n" * (MOST_ROWS + 10))) == MOST_ROWS


def test_files_that_are_none_are_one_error_and_beside_others_one_gap(tmp_path: Path) -> None:
    (tmp_path / "stacks_20261120_120000.txt").write_bytes(bytes(range(256)))
    (tmp_path / "fr_trace_20261120_120000.txt").mkdir()
    with pytest.raises(UsageError, match="nor of torch's debug server any that tells of ranks"):
        explain_debug_directory(tmp_path)
    (tmp_path / "stacks_20261120_120001.txt").write_text(STACKS)
    found = explain_debug_directory(tmp_path)
    assert found.culprits == (2,)
    assert "fr_trace_20261120_120000.txt cannot be read: Is a directory" in found.gaps


@pytest.mark.parametrize("below", ["", "host"])
def test_where_dumps_lie_beside_they_are_what_is_explained(below: str, tmp_path: Path) -> None:
    (tmp_path / "stacks_20261120_120001.txt").write_text(STACKS)
    assert is_debug_directory(tmp_path)
    write(Flight(ranks(4, without(1, 7))), tmp_path / below)
    done = CliRunner().invoke(main, ["explain", str(tmp_path)])
    assert "missing call: rank 1 leaves out" in done.output


@pytest.mark.parametrize("name", ["stacks_99999999_999999.txt", "stacks.txt", "fr_trace_20261120.txt", "rank_0"])
def test_other_files_are_none_of_the_servers(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("")
    assert not is_debug_directory(tmp_path)


HERE = stacks_of(STACKS)


def at(*stacks: Mapping[int, Stack]) -> list[Moment]:
    return [Moment(number * 10**9, each) for number, each in enumerate(stacks)]


def test_the_first_thread_is_looked_at_whatever_others_do() -> None:
    frames = '  File "/x.py", line 3 in run\n  File "/y.py", line 1 in _bootstrap\n'
    other = f"Thread 0x1 [python] (most recent call first):\n{frames}"
    said = STACKS.partition("===\n")[2].partition("=== Rank 1")[0]
    assert stack_of(other + said + other).call == "barrier"
    assert stack_of(other).site is None


def test_of_one_moment_nothing_is_likely() -> None:
    (cause,) = judge(at(HERE)).causes
    assert (cause.confidence, cause.finding.culprits) == (Confidence.POSSIBLE, (2,))


def test_who_moves_is_not_accused_and_neither_is_anybody_else() -> None:
    before = HERE | {2: replace(HERE[2], text="elsewhere")}
    found = judge(at(before, HERE))
    assert found.causes == ()
    assert "rank 2 was elsewhere shortly before" in found.fits[0]


def test_who_does_not_answer_while_others_wait_is_lost() -> None:
    silent = HERE | {2: Stack(error="status 503")}
    (cause,) = judge(at(silent, silent)).causes
    assert (str(cause.finding.kind), cause.finding.culprits) == ("lost rank", (2,))


def test_nobody_is_at_fault_where_all_are_in_one_line_or_in_no_call() -> None:
    assert judge(at(dict.fromkeys(range(4), HERE[0]))).causes == ()
    assert judge(at(dict.fromkeys(range(4), HERE[2]))).causes == ()


def test_the_few_in_another_call_are_possibly_at_fault() -> None:
    other = replace(HERE[0], call="broadcast")
    (cause,) = judge(at(HERE | {2: other}, HERE | {2: other})).causes
    assert (str(cause.finding.kind), cause.finding.culprits) == ("call ordering", (2,))
    assert cause.confidence is Confidence.POSSIBLE
    (cause,) = judge(at({0: HERE[0], 1: HERE[0], 2: other, 3: other})).causes
    assert cause.finding.culprits == ()
