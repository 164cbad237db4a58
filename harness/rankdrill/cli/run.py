"""``rankdrill run``: a script as torchrun runs it, watched as a test is."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankdrill.cli.choose import check_seconds, choose_output
from rankdrill.cli.terminal import terminal
from rankdrill.errors import UsageError
from rankdrill.outputs import write_whole
from rankdrill.strictness import contracts_asked_for

if TYPE_CHECKING:
    from rich.console import Console

    from rankdrill.faults import Plan
    from rankdrill.launch import Launched
    from rankdrill.report import Picture

__all__ = ["run"]

_PARSING = {"allow_interspersed_args": False}  # what follows the script is the script's


@click.command(context_settings=_PARSING)
@click.option("-n", "--ranks", "n", type=click.IntRange(1), default=2, show_default=True, help="How many ranks.")
@click.option("-m", "--module", is_flag=True, help="SCRIPT is a module's name, as for python -m.")
@click.option(
    "--fault", "faults", multiple=True, metavar="FAULT", help="What breaks where, a line of a plan. Repeatable."
)
@click.option("--plan", "plan_file", metavar="FILE", help="A plan: lines, or the JSON of Plan.to_json().")
@click.option("--deadline", type=float, metavar="S", help="End the run after so many seconds. [when it can only hang]")
@click.option("--backend", metavar="NAME", help="Make every default group of this, whatever the script asks for.")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Ranks' current device."
)
@click.option("--no-contracts", is_flag=True, help="Do not compare what ranks do in each collective.")
@click.option("--strict-contracts", is_flag=True, help="Have ranks destroy each group that they made, too.")
@click.option("--json", "json_file", metavar="FILE", help="Write what came of it as JSON.")
@click.option("--html", "html_file", metavar="FILE", help="Write a page: verdict, steps in time, waits, stacks.")
@click.option("--perfetto", "trace_file", metavar="FILE", help="Write the steps as a trace for ui.perfetto.dev.")
@click.argument("script", nargs=1)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run(
    ctx: click.Context,
    n: int,
    module: bool,
    faults: tuple[str, ...],
    plan_file: str | None,
    deadline: float | None,
    backend: str | None,
    device: str,
    no_contracts: bool,
    strict_contracts: bool,
    json_file: str | None,
    html_file: str | None,
    trace_file: str | None,
    script: str,
    args: tuple[str, ...],
) -> None:  # fmt: skip
    """Run SCRIPT with ARGS on N ranks of this machine, and say which of them is at fault if they come apart.

    The script needs no change: it finds the environment that torchrun gives, and makes its process group as ever. What
    ranks print is shown as it comes, each line after its rank. A rank that is killed, skips a collective, enters
    another one, or waits for one that will never come ends the run at once, with the culprit first.

    \b
    Examples:
      rankdrill run -n 4 train.py --lr 0.1
      rankdrill run -n 4 -m mypackage.train
      rankdrill run -n 4 --fault "rank 2: kill before collective.all_reduce #3" train.py
      rankdrill run -n 4 --backend gloo train.py      what was written for NCCL, on a laptop

    \b
    Exit codes: 0 all ranks came to their end, 1 something failed, 2 a mistake in the command, 130 interrupted, 143 by
    SIGTERM, 129 by SIGHUP; and the script's own, where ranks left with one.
    """
    asked = {"--json": json_file, "--html": html_file, "--perfetto": trace_file}
    files = {option: path for option, name in asked.items() if (path := choose_output(option, name)) is not None}
    check_seconds("--deadline", deadline)
    contracts = contracts_asked_for(without=no_contracts, strictly=strict_contracts)
    _check_script(script, module)
    plan = _plan(faults, plan_file)
    if plan is not None:
        plan.check(n)
    from rankdrill.worlds import check_world, start_template

    check_world(n, device=device)
    start_template()  # which imports torch, while this process imports what it needs
    from rankdrill.launch import Script, launch
    from rankdrill.launch.progress import Progress

    err = terminal(stderr=True)
    with Progress(err) as progress:
        launched = launch(
            Script(script, args, module, backend),
            n,
            plan=plan,
            deadline=deadline,
            device=device,
            contracts=contracts,
            look=progress.look,
        )
    for option, path in files.items():  # first: nobody need be reading what is shown
        _write(option, path, launched)
    _show(launched, deadline, err, device)
    if launched.interrupted is not None:
        click.echo(f"interrupted by {launched.interrupted.name}", err=True)
    ctx.exit(launched.exit_code)


def _check_script(script: str, module: bool) -> None:
    if not module and not Path(script).is_file():
        hint = f"; for a module: -m {script}" if "/" not in script and not script.endswith(".py") else ""
        raise UsageError(f"{script}: there is no such file{hint}")
    if module:
        sys.path.insert(0, "")
        top = script.partition(".")[0]
        if not top.isidentifier() or find_spec(top) is None:
            raise UsageError(
                f"-m {script}: there is no module {top!r} in the current directory or among those installed"
            )


def _plan(faults: tuple[str, ...], plan_file: str | None) -> Plan | None:
    from rankdrill.faults import Plan

    if plan_file is None:
        return Plan.parse("\n".join(faults)) if faults else None
    try:
        text = Path(plan_file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--plan {plan_file}: {getattr(error, 'strerror', None) or error}; give a file of faults"
        ) from error
    planned = Plan.from_json(text) if text.lstrip().startswith(("{", "[")) else Plan.parse(text)
    return Plan((*planned.faults, *Plan.parse("\n".join(faults)).faults))


def _show(launched: Launched, deadline: float | None, err: Console, device: str) -> None:
    from rankdrill.worlds.told import how_meant, if_longer, lacks_gpus, told_of

    outcome = launched.outcome
    if outcome.ok:
        return
    told = told_of(outcome, {})
    err.print(f"\n{told.headline}", style="bold red", markup=False, soft_wrap=True)
    for block in told.blocks:
        if block.heading != told.headline:
            err.print(f"\n{block.heading}", style="bold", markup=False, soft_wrap=True)
        if block.text:
            err.print(f"\n{block.text}", markup=False, soft_wrap=True)
    if told.victims:
        err.print("\nvictims:", style="bold")
        for line in told.victims:
            err.print(f"  {line}", markup=False, soft_wrap=True)
    if (meant := how_meant(outcome)) is not None:
        err.print(f"\n{meant}:", style="bold", markup=False)
        err.print("  rankdrill run --no-contracts …", markup=False)
    if (longer := if_longer(outcome, deadline)) is not None:
        err.print(f"\n{longer}:", style="bold", markup=False)
        err.print("  rankdrill run --deadline …", markup=False)
    if device == "cpu" and lacks_gpus(outcome):
        err.print("\nif ranks are to share the GPUs that there are:", style="bold")
        err.print("  rankdrill run --device cuda …", markup=False)
    err.print("\nto run it again:", style="bold")
    err.print(f"  {shlex.join(['rankdrill', *sys.argv[1:]])}", markup=False, soft_wrap=True)


def _write(option: str, path: Path, launched: Launched) -> None:
    try:
        write_whole(path, _WRITTEN[option](launched))
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}; give another file") from error


def _as_json(launched: Launched) -> str:
    import json

    import rankdrill
    from rankdrill.replay import score_of_outcome

    document = {
        "format": "rankdrill run",
        "version": 1,
        "rankdrill": rankdrill.__version__,
        "command": sys.argv[1:],
        "exit_code": launched.exit_code,
        "interrupted": launched.interrupted.name if launched.interrupted is not None else None,
        **launched.outcome.as_fields(),
        "score": score_of_outcome(launched.outcome).as_fields(),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _as_html(launched: Launched) -> str:
    from rankdrill.report import run_as_html

    return run_as_html(_picture(launched))


def _as_trace(launched: Launched) -> str:
    from rankdrill.report import run_as_trace

    return run_as_trace(_picture(launched))


def _picture(launched: Launched) -> Picture:
    from rankdrill.report import picture_of

    command = shlex.join(["rankdrill", *sys.argv[1:]])
    return picture_of(launched.outcome, command, command)


_WRITTEN: dict[str, Callable[[Launched], str]] = {"--json": _as_json, "--html": _as_html, "--perfetto": _as_trace}
