"""Torch's debug server: asked while a job on gloo hangs, and what it writes to its directory."""

from __future__ import annotations

import importlib.util
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rankdrill.cli import main
from rankdrill.diagnosis import Confidence
from rankdrill.errors import UsageError
from rankdrill.explain.debug_server import explain_debug_directory, explain_server, is_debug_directory
from rankdrill.explain.debug_server.tables import active_in
from rankdrill.explain.explanation import Explanation
from tests.explain import served_job
from tests.explain.debug_tables import CASES, TIMES, tables_of
from tests.fixtures import fixture
from tests.report.browser import data_of

PATIENCE_S = 300.0
RANKS = 3 + 1
LINES = Path(served_job.__file__).read_text().splitlines()
ABSENT, WAITING = (
    next(at for at, line in enumerate(LINES, 1) if line.endswith(f"# {mark}")) for mark in ("absent", "waiting")
)
NEEDED = ("torch.distributed.debug", "tabulate", "jinja2")
is_served = all(importlib.util.find_spec(name) for name in NEEDED) and any(
    importlib.util.find_spec(name) for name in ("aiohttp", "requests")
)
served = pytest.mark.skipif(not is_served, reason="torch's debug server needs torch 2.10, tabulate, jinja2 and aiohttp")


@dataclass(frozen=True)
class Served:
    """A job that hangs, the address of its server, the directory that it writes to, and its ranks."""

    address: str
    directory: Path
    ranks: list[subprocess.Popen[bytes]]

    def assert_alive(self) -> None:
        """With what the ranks wrote where one has ended: nobody waits for a job that is gone."""
        if any(rank.poll() is not None for rank in self.ranks):
            written = "\n".join(each.read_text()[-2000:] for each in sorted(self.directory.parent.glob("rank-*.txt")))
            raise AssertionError(f"a rank has ended: {[rank.poll() for rank in self.ranks]}\n{written}")


def free_ports(count: int) -> list[int]:
    """Below those that the kernel gives to connections: nobody else is given one before it is used."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(10_000, 30_000)
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            found.append(port)
    return found


@contextmanager
def hung_job(place: Path) -> Iterator[Served]:
    port, master = free_ports(2)
    ranks = []
    try:
        for rank in range(RANKS):
            launcher = {"RANK": rank, "WORLD_SIZE": RANKS, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": master}
            paths = os.pathsep.join(path for path in sys.path if path)
            more = {
                **{name: str(value) for name, value in launcher.items()},
                "PYTHONPATH": paths,
                "OMP_NUM_THREADS": "1",
            }
            command = [sys.executable, "-m", served_job.__name__, str(port), str(place)]
            with (place.parent / f"rank-{rank}.txt").open("w") as output:
                process = subprocess.Popen(
                    command, env={**os.environ, **more}, stdout=output, stderr=output, start_new_session=True
                )
            ranks.append(process)
        yield Served(f"http://127.0.0.1:{port}", place, ranks)
    finally:
        for process in ranks:
            os.killpg(process.pid, 9)  # the server is a child of the first rank's
            process.wait()


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with hung_job(tmp_path_factory.mktemp("served") / "dumps") as found:
        yield found


def awaited(job: Served, explain: Callable[[], Explanation], known: Callable[[Explanation], bool]) -> Explanation:
    until = time.monotonic() + PATIENCE_S
    while True:
        job.assert_alive()
        try:
            if known(found := explain()):
                return found
        except UsageError as error:
            problem = str(error)
        else:
            problem = f"{found}"
        assert time.monotonic() < until, problem
        time.sleep(0.2)


@served
def test_a_job_that_hangs_is_asked_by_its_server_and_the_lines_are_those_of_its_stacks(hung: Served) -> None:
    found = awaited(hung, lambda: explain_server(hung.address), lambda found: bool(found.culprits))
    (cause,) = found.causes
    assert (str(cause.finding.kind), cause.finding.culprits, found.victims) == ("missing call", (2,), (0, 1, 3))
    assert cause.finding.step == "barrier #8 on 'default'"
    absent, waiting, *_ = cause.finding.sides
    assert {site.line for site in absent.sites if site} == {ABSENT}
    assert {(site.line, site.via) for site in waiting.sites if site} == {(WAITING, "barrier")}
    done = CliRunner().invoke(main, ["explain", hung.address])
    assert done.exit_code == 1
    assert "missing call: rank 2 has not come to barrier #8 on 'default', at " in done.output
    assert f"served_job.py:{ABSENT}" in next(line for line in done.output.splitlines() if "; now at" in line)


@served
def test_what_the_server_writes_of_it_is_explained_by_stacks(hung: Served) -> None:
    def explain() -> Explanation:
        if not hung.directory.is_dir() or not is_debug_directory(hung.directory):
            raise UsageError("nothing is there yet")
        return explain_debug_directory(hung.directory)

    def is_likely(found: Explanation) -> bool:
        return any(cause.confidence is Confidence.LIKELY for cause in found.causes)

    found = awaited(hung, explain, is_likely)
    (cause,) = found.causes
    assert (str(cause.finding.kind), cause.finding.culprits, found.victims) == ("missing call", (2,), (0, 1, 3))
    absent, waiting = cause.finding.sides
    assert {site.line for site in (*absent.sites, *waiting.sites) if site} == {ABSENT, WAITING}
    assert any("as with gloo, where its analyzer fails" in gap for gap in found.gaps)


def test_stacks_that_were_written_are_explained_as_ever() -> None:
    found = explain_debug_directory(fixture("debug_server") / "gloo")
    (cause,) = found.causes
    assert (str(cause.finding.kind), cause.finding.culprits) == ("missing call", (2,))
    assert cause.confidence is Confidence.LIKELY
    assert cause.why == ("all stacks were the same at 3 moments, over 10 s",)
    assert [site.line for side in cause.finding.sides for site in side.sites if site] == [12, 13, 13, 13]


@pytest.mark.parametrize("name", CASES)
def test_tables_of_a_job_on_nccl_are_explained(name: str) -> None:
    case = CASES[name]
    found = explain_debug_directory(fixture("debug_server") / "nccl" / name)
    assert [(str(cause.finding.kind) in (case.kinds or ()), cause.finding.culprits) for cause in found.causes] == (
        [(True, case.culprits)] if case.kinds else []
    )
    assert all(cause.confidence is Confidence.LIKELY for cause in found.causes)


@served
@pytest.mark.parametrize("name", CASES)
def test_tables_are_those_that_torch_writes_today(name: str) -> None:
    there = (fixture("debug_server") / "nccl" / name / f"fr_trace_{TIMES[0]}.txt").read_text()
    assert active_in(tables_of(CASES[name].flight())) == active_in(there)


def test_who_has_not_come_at_one_moment_need_not_be_late(tmp_path: Path) -> None:
    there = fixture("debug_server") / "nccl" / "absent" / f"fr_trace_{TIMES[0]}.txt"
    (tmp_path / there.name).write_bytes(there.read_bytes())
    found = explain_debug_directory(tmp_path)
    assert found.causes == ()
    assert any("rank 3 had not come to it" in fit for fit in found.fits)


def test_tables_have_the_lines_of_the_stacks_beside_them(tmp_path: Path) -> None:
    for part in ("gloo", "nccl/absent"):
        for file in (fixture("debug_server") / part).iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (cause,) = explain_debug_directory(tmp_path).causes
    assert cause.finding.culprits == (3,)
    assert [site.line for side in cause.finding.sides for site in side.sites if site] == [13, 13, 13, 12]


def page_of(there: Path, page: Path) -> Any:
    done = CliRunner().invoke(main, ["explain", str(there), "--html", str(page)])
    assert done.exit_code == 1, done.output
    return data_of(page.read_text())


def test_its_page_has_the_stacks_that_it_told_and_no_steps_where_these_are_all(tmp_path: Path) -> None:
    data = page_of(fixture("debug_server") / "gloo", tmp_path / "page.html")
    assert [stack["ranks"] for stack in data["stacks"]] == [[2], [0, 1, 3]]
    assert "line 12 in main" in data["stacks"][0]["text"]
    assert all(lane["steps"]["begin"] == [] for lane in data["lanes"])
    assert any(note.startswith("Stacks are all that the server told") for note in data["notes"])
    assert data["repeat"] == f"rankdrill replay {fixture('debug_server') / 'gloo'}"


def test_its_page_has_the_calls_of_its_tables(tmp_path: Path) -> None:
    data = page_of(fixture("debug_server") / "nccl" / "apart", tmp_path / "page.html")
    assert all(lane["steps"]["begin"] for lane in data["lanes"])
    assert [lane["role"] for lane in data["lanes"]] == ["victim", "victim", "culprit", "victim"]


def test_it_cannot_be_watched(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["explain", str(fixture("debug_server") / "gloo"), "--watch"])
    assert done.exit_code == 2
    assert "--watch: give the one directory that rankdrill.record writes to" in done.output
