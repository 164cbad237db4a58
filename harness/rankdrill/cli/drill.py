"""``rankdrill drill``: every gather through every fault that applies to it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankdrill.cli.choose import (
    check_faults,
    check_seconds,
    choose_adapters,
    choose_output,
    choose_payloads,
    choose_sizes,
    choose_wanted,
    is_suite,
)
from rankdrill.cli.profiles import ask_all
from rankdrill.cli.terminal import terminal
from rankdrill.errors import UsageError
from rankdrill.outputs import write_whole
from rankdrill.step import Kind

if TYPE_CHECKING:
    from rich.console import Console

    from rankdrill.conformance import Adapter, CaseResult, Drill
    from rankdrill.conformance.kit.answers import Answer
    from rankdrill.report import Tally

__all__ = ["drill"]

INTERRUPTED = 130
_SIZES = "2,4"


@dataclass(frozen=True, slots=True)
class _Outputs:
    json: Path | None
    junit: Path | None
    html: Path | None


@click.command()
@click.option(
    "--path",
    "paths",
    multiple=True,
    metavar="NAME",
    help="A gather (see --list), or module:attribute of your own: an Adapter, or a class that conformance made. "
    "May be repeated. [all of rankdrill's]",
)
@click.option("--ranks", default=None, metavar="N,…", help="World sizes. [2,4; where something is asked, 2,3]")
@click.option(
    "--ask",
    "asked",
    multiple=True,
    metavar="NAME",
    help="A promise, or a question of one, as it is printed. May be repeated. [of your own gather, all there are]",
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="FAULT",
    help="A strike (see --list), a line of a plan, or the word none. May be repeated. [every strike that applies]",
)
@click.option(
    "--payload",
    "payloads",
    multiple=True,
    metavar="NAME",
    help="What is gathered (see --list). May be repeated. [chosen by the drill]",
)
@click.option("--thorough", is_flag=True, help="Strike every occurrence of every step. Takes long.")
@click.option("--timeout", type=float, default=None, metavar="S", help="The gather's own timeout in every case.")
@click.option("--deadline", type=float, default=25.0, show_default=True, metavar="S", help="Ends a case that hangs.")
@click.option("--jobs", type=click.IntRange(1, 64), default=4, show_default=True, help="Worlds at once.")
@click.option("--json", "json_file", metavar="FILE", help="Write every case as JSON.")
@click.option("--junit", "junit_file", metavar="FILE", help="Write every case as JUnit XML.")
@click.option("--html", "html_file", metavar="FILE", help="Write a page on which each cell opens its cases.")
@click.option("--list", "list_only", is_flag=True, help="List paths, strikes and payloads, and run nothing.")
@click.pass_context
def drill(
    ctx: click.Context,
    paths: tuple[str, ...],
    ranks: str | None,
    asked: tuple[str, ...],
    faults: tuple[str, ...],
    payloads: tuple[str, ...],
    thorough: bool,
    timeout: float | None,
    deadline: float,
    jobs: int,
    json_file: str | None,
    junit_file: str | None,
    html_file: str | None,
    list_only: bool,
) -> None:  # fmt: skip
    """Put gathers through every fault that applies to them.

    First each gather runs with nothing broken, on every world size and with every payload. From the steps it took
    there, the faults that apply are derived: each strike, at each kind of step, on every rank. A gather passes if in
    every case all ranks receive the right result, or all raise the same error naming the rank that was struck; the
    next call works; and nothing is left behind.

    A gather of your own is first asked whether it keeps what it promises, with a verdict on each promise; a class that
    conformance made is asked that alone, unless faults or payloads are given.

    \b
    Examples:
      rankdrill drill
      rankdrill drill --path gather_object --path all_gather --ranks 2,3,5
      rankdrill drill --fault kill --fault stop --junit drill.xml --html drill.html
      rankdrill drill --path mypackage.comm:ADAPTER
      rankdrill drill --path tests.test_comm:TestGather --ask right --ask groups
    """
    outputs = _Outputs(
        choose_output("--json", json_file), choose_output("--junit", junit_file), choose_output("--html", html_file)
    )
    check_seconds("--timeout", timeout)
    check_seconds("--deadline", deadline)
    adapters = choose_adapters(paths)
    sizes = choose_sizes(ranks or _SIZES)
    chosen = choose_payloads(payloads, adapters)
    check_faults(faults)
    if list_only:
        _list()
        return
    from rankdrill.conformance import Limits
    from rankdrill.conformance.sweep import Sweep
    from rankdrill.report import Tally

    struck = bool(faults or payloads)
    began = time.monotonic()
    given = ask_all(wanted) if (wanted := choose_wanted(adapters, ranks, asked, faults=struck)) else []
    left = {name: its for name, its in adapters.items() if not asked and (struck or not is_suite(name))}
    if not left:
        _write(Tally(()), outputs, time.monotonic() - began, complete=True, answers=given)
        ctx.exit(1 if any(answer.failed for answer in given) else 0)
    limits = Limits(deadline=deadline) if timeout is None else Limits(timeout, timeout, deadline)
    sweep = Sweep.choose(left, sizes, faults, payloads=chosen, thorough=thorough)
    ctx.exit(_run(sweep.drill(limits, jobs, tells=outputs.html is not None), outputs, given))


def _list() -> None:
    from rankdrill.cli.listing import print_listing
    from rankdrill.conformance.paths import FOREIGN, OURS
    from rankdrill.conformance.payloads import PAYLOADS
    from rankdrill.conformance.strikes import known_strikes

    sections = {
        "paths": [(name, _about(adapter)) for name, adapter in OURS.items()],
        "paths of others, drilled only by name": [(name, _about(adapter)) for name, adapter in FOREIGN.items()],
        "strikes": known_strikes().items(),
        "payloads": [(name, payload.about) for name, payload in PAYLOADS.items()],
    }
    print_listing(terminal(), sections)


def _about(adapter: Adapter) -> str:
    return "steps: " + ", ".join(kind for kind in Kind if kind in adapter.kinds)


def _run(drill: Drill, outputs: _Outputs, answers: Sequence[Answer]) -> int:
    from rankdrill.report import Tally, watched

    out, err = terminal(), terminal(stderr=True)
    began = time.monotonic()
    results: list[CaseResult] = []
    complete = True
    try:
        for result in watched(drill.results(), lambda: drill.total, err):
            results.append(result)
    except KeyboardInterrupt:
        complete = False
    elapsed = time.monotonic() - began
    tally = Tally(results, tuple(drill.adapters))
    try:
        _show(tally, out, elapsed, drill.total, complete)
    finally:  # what took minutes is written down though nobody can be shown it
        _write(tally, outputs, elapsed, complete, answers)
    if not complete:
        return INTERRUPTED
    return 0 if tally.ok and not any(answer.failed for answer in answers) else 1


def _show(tally: Tally, out: Console, elapsed: float, total: int, complete: bool) -> None:
    from rankdrill.report import print_failures, print_matrix

    out.print()
    print_matrix(tally, out)
    print_failures(tally, out)
    out.print()
    failed, cases = len(tally.failures), f"{len(tally.results)} case{'s' if len(tally.results) != 1 else ''}"
    if not complete:
        out.print(f"[bold yellow]interrupted[/] after {len(tally.results)} of at least {total} cases, {failed} failed")
    elif failed:
        out.print(f"[bold red]{failed} of {cases} failed[/] in {elapsed:.1f} s")
    else:
        out.print(f"[bold green]{cases} passed[/] in {elapsed:.1f} s")


def _write(tally: Tally, outputs: _Outputs, elapsed: float, complete: bool, answers: Sequence[Answer]) -> None:
    from rankdrill.report import drill_as_html, drill_as_json, drill_as_junit

    if outputs.json:
        _write_one("--json", outputs.json, drill_as_json(tally, elapsed=elapsed, complete=complete, answers=answers))
    if outputs.junit:
        _write_one("--junit", outputs.junit, drill_as_junit(tally, elapsed=elapsed, answers=answers))
    if outputs.html:
        document = drill_as_html(tally, elapsed=elapsed, complete=complete, answers=answers)
        _write_one("--html", outputs.html, document)


def _write_one(option: str, path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}; give another file") from error
