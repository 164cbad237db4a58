"""The suite again and again on a machine that is busy: what fails now and then, and how often.

    python benchmarks/soak.py [--rounds 20] [--busy 1] [--json FILE [--again]] [-- PYTEST ARGUMENTS]

`--busy` processes compute beside it all the time, at least as eagerly as the tests do. Every round is a session of its
own, `-n 2` unless told otherwise. FILE is written after each, so that `--again` goes on where a soak was interrupted:
it has what failed tests said, and of which commits the rounds were. Exits with 1 where any test failed in any round;
the table says which, and how often.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
DEFAULT = ("-q", "-n", "2", "tests")
MOST_TOLD = 1 << 14  # characters of what one failed test said, the last ones
_SPIN = "while True: pass"


@dataclass(frozen=True)
class Round:
    """One session: its exit code, how many tests ran, which failed, how long it took, the commit that it was of, and
    what each test that failed said.
    """

    code: int
    tests: int
    failed: tuple[str, ...]
    seconds: float
    commit: str = ""
    told: tuple[str, ...] = ()


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that compute all the time."""
    spinning = [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def run_once(arguments: Sequence[str]) -> Round:
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", *arguments, f"--junit-xml={report}", "-p", "no:cacheprovider"]
        began = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=dict(os.environ))
        seconds = time.monotonic() - began
        if not report.exists():
            sys.exit(f"{' '.join(command)} did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        tests, failed = read(report.read_text())
        return Round(done.returncode, tests, tuple(failed), seconds, commit(), tuple(failed.values()))


def commit() -> str:
    """The one that is checked out, with a plus where files differ from it; nothing where that is not known."""
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except OSError:  # no git
        return ""
    return told.stdout.strip()


def kept(file: Path | None) -> list[Round]:
    """The rounds that an earlier soak has left in `file`."""
    if file is None or not file.exists():
        return []
    each = json.loads(file.read_text())
    return [Round(**one | {name: tuple(one.get(name, ())) for name in ("failed", "told")}) for one in each]


def keep(file: Path | None, rounds: Sequence[Round]) -> None:
    if file is not None:
        aside = file.with_suffix(".part")
        aside.write_text(json.dumps([asdict(one) for one in rounds], indent=1))
        aside.replace(file)


def read(report: str) -> tuple[int, dict[str, str]]:
    """How many tests a JUnit report tells of, and what those that failed said, by their names."""
    # Of tests on many ranks the report has text that XML has no room for.
    tree = ElementTree.fromstring(re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", "?", report))
    cases = list(tree.iter("testcase"))
    failed: dict[str, str] = {}
    for case in cases:
        for how in (*case.findall("failure"), *case.findall("error")):
            failed[f"{case.get('classname')}::{case.get('name')}"] = (how.text or str(how.get("message")))[-MOST_TOLD:]
    return len(cases), failed


def table_of(rounds: Sequence[Round]) -> Table:
    counts = Counter(name for each in rounds for name in set(each.failed))
    table = Table("test", f"failed in, of {len(rounds)} rounds")
    for name, count in counts.most_common():
        table.add_row(name, str(count))
    return table


def _end_all(*_: object) -> None:
    """Who ends the soak ends what computes beside it, and the session of its round, though it has only begun."""
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in map(int, children.read_text().split()):
            os.kill(pid, signal.SIGKILL)
    os._exit(128 + signal.SIGTERM)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--busy", type=int, default=1, metavar="N", help="processes beside it (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the rounds there")
    parser.add_argument("--again", action="store_true", help="count the rounds that are in --json already")
    parser.add_argument("pytest", nargs="*", metavar="ARGUMENT", help=f"of pytest (default: {' '.join(DEFAULT)})")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, _end_all)
    if asked.again and asked.json is None:
        parser.error("--again needs the --json FILE of the soak that is to go on")
    console, rounds = Console(), kept(asked.json) if asked.again else []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with busy(asked.busy), Progress(*columns, console=console) as progress:
        for _ in progress.track(range(len(rounds), asked.rounds), description="rounds"):
            one = run_once(asked.pytest or DEFAULT)
            rounds.append(one)
            keep(asked.json, rounds)
            console.print(f"{one.tests} tests, {len(one.failed)} failed, {one.seconds:.0f} s", *one.failed, sep="\n  ")
    wrong = [one for one in rounds if one.code]
    if wrong:
        console.print(table_of(rounds))
    of = ", ".join(dict.fromkeys(one.commit for one in rounds if one.commit))
    console.print(f"{len(rounds) - len(wrong)} of {len(rounds)} rounds passed" + (f", of {of}" if of else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
