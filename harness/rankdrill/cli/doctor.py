"""``rankdrill doctor``: what this machine can do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rankdrill.cli.machine import Finding

__all__ = ["doctor"]

_STYLES = {"ok": "green", "absent": "dim", "poor": "yellow", "fatal": "bold red"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Say what this machine has, and what each thing switches on.

    What is absent is not needed; beside it stands what it would switch on. Ends with a trial run of two ranks. Exits
    with 0 unless rankdrill cannot run here.
    """
    from rankdrill.cli.machine import Level, look

    findings = tuple(look())
    fatal = [finding.name for finding in findings if finding.level is Level.FATAL]
    if as_json:
        document = {"schema": 1, "ok": not fatal, "findings": [asdict(finding) for finding in findings]}
        click.echo(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        _show(findings, fatal)
    ctx.exit(1 if fatal else 0)


def _show(findings: Sequence[Finding], fatal: Sequence[str]) -> None:
    from rich import box
    from rich.table import Table

    from rankdrill.cli.terminal import terminal

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("found", overflow="fold")
    table.add_column("in rankdrill", style="dim", overflow="fold")
    for finding in findings:
        style = _STYLES[finding.level]
        table.add_row(f"[{style}]{finding.level}[/]", finding.name, finding.found, finding.means)
    out = terminal()
    out.print(table)
    out.print()
    if fatal:
        out.print(f"[bold red]rankdrill cannot run here[/]: {', '.join(fatal)}")
    else:
        out.print("[bold green]rankdrill runs here.[/] Next: mark a test @pytest.mark.ranks(2) and call pytest,")
        out.print("or rankdrill drill --path all_gather")
