"""The command group, and what an error of the user's looks like."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, TextIO

import click

from rankdrill import __version__
from rankdrill.cli.doctor import doctor
from rankdrill.cli.drill import INTERRUPTED, drill
from rankdrill.cli.explain import explain
from rankdrill.cli.replay import replay
from rankdrill.cli.run import run
from rankdrill.errors import UsageError

__all__ = ["main"]

_HELP = """Fire drills for ranks: break what can break between the ranks of a job, and see which rank did it.

A test runs on ranks when it is marked @pytest.mark.ranks(4) and pytest is called as ever; the commands here are for
scripts, for the machine, and for ways to gather Python objects across ranks.

\b
Examples:
  rankdrill run -n 4 train.py            a script as torchrun runs it, and which rank is at fault
  rankdrill replay run.json              the same calls again, and as a test: --as-test
  rankdrill explain dumps/               what a hung job has left, and which rank is at fault
  rankdrill doctor                       what this machine can do
  rankdrill drill                        every gather, every fault, every rank: about 3 minutes
  rankdrill drill --path all_gather      one gather
  rankdrill drill --fault kill           one kind of fault
  rankdrill drill --path torch.all_gather_object --fault kill
                                         what happens to torch's own

\b
Environment:
  RANKDRILL_KEEP_TEMPLATE=600            keep torch imported until 600 seconds have passed without a session,
                                         so that ranks start several times sooner

\b
Exit codes: 0 all is well, 1 something failed, 2 a mistake in the command, 130 interrupted;
of run also the script's own.
"""


class _Refused(click.ClickException):
    exit_code = 2


class _Group(click.Group):
    """Shows a `UsageError` as one line and exits with 2; exits with 130 when interrupted, at whatever moment.

    An output that takes no more, on a full disk say, is shown and ends it as a `UsageError` is.
    """

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            return super().main(*args, **extra)
        except OSError as error:
            if not _is_lost(sys.stdout):
                raise
            with contextlib.suppress(OSError):  # which may go to the same place
                said = f"standard output cannot be written: {error.strerror}; send it elsewhere"
                _Refused(said).show()
        sys.exit(_Refused.exit_code)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            raise _Refused(str(error)) from error
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


def _is_lost(output: TextIO) -> bool:
    """Whether what was printed cannot be written; then it is thrown away, or Python would try again at its end."""
    try:
        output.write("\n")  # what failed before need not be there any more, to fail again
        output.flush()
    except OSError:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), output.fileno())
        return True
    return False


@click.group(cls=_Group, help=_HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="rankdrill", message="%(prog)s %(version)s")
def main() -> None:
    """The entry point of ``rankdrill``."""


main.add_command(run)
main.add_command(replay)
main.add_command(explain)
main.add_command(drill)
main.add_command(doctor)
