"""A script launched on N ranks: run under a plan, watched, and what came of it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from rankdrill.launch.script import Script, run_script
from rankdrill.launch.signals import Interrupted, raised_as_interrupts
from rankdrill.ledger import LedgerView
from rankdrill.ledger.whole_paths import look_below
from rankdrill.strictness import Contracts
from rankdrill.worlds import Outcome, Status, World
from rankdrill.worlds.job import Job

if TYPE_CHECKING:
    from rankdrill.faults import Plan

__all__ = ["Launched", "launch"]

FAILED = 1
BY_SIGNAL = 128  # and its number, as shells have it


@dataclass(frozen=True)
class Launched:
    """What came of a script, and the code to exit with for it.

    0 if all ranks came to their end and every planned fault struck; the script's own where it left with one and that is
    all that went wrong; 128 and the signal's number where one ended the run, so 130 after Ctrl-C; else 1.
    """

    outcome: Outcome
    interrupted: signal.Signals | None = None

    @property
    def exit_code(self) -> int:
        if self.interrupted is not None:
            return BY_SIGNAL + self.interrupted
        if self.outcome.ok:
            return 0
        codes = {_code_of(self.outcome, rank) for rank in self.outcome.culprits}
        own = codes.pop() if len(codes) == 1 and not self.outcome.unfired else None
        return FAILED if own is None else own


def launch(
    script: Script,
    n: int,
    *,
    plan: Plan | None = None,
    deadline: float | None = None,
    device: str = "cpu",
    contracts: Contracts = True,
    look: Callable[[Sequence[LedgerView]], None] | None = None,
) -> Launched:
    """Run `script` on `n` ranks of this machine, each of which makes its process group itself (``env://``).

    What ranks print is shown as it comes, each line after its rank. `deadline` is in seconds; without one only what is
    certain to hang is ended, and what Ctrl-C, SIGTERM or SIGHUP interrupts is told as it was then. `look` is called a
    few times a second with the newest of what each rank wrote down. Raises `UsageError` for a world that cannot be.
    """
    if not script.module:
        look_below(os.path.dirname(os.path.abspath(script.name)))
    interrupted: signal.Signals | None = None
    with (
        raised_as_interrupts(),
        World(n, device=device, init=False, stream=True, contracts=contracts, look=look) as world,
    ):
        job = Job(run_script, (script,), plan=plan, by_reference=True)
        try:
            outcome = world.run_job(job, deadline=inf if deadline is None else deadline)
        except KeyboardInterrupt as error:
            if world.cut_short is None:
                raise
            outcome = world.cut_short
            interrupted = error.signal if isinstance(error, Interrupted) else signal.SIGINT
    sys.stdout.flush()
    return Launched(outcome, interrupted)


def _code_of(outcome: Outcome, rank: int) -> int | None:
    """What a rank's process would have left by itself, None where that is not how it ended."""
    ended = outcome.ranks[rank]
    if ended.status is not Status.RAISED or ended.finding is not None:
        return None
    if not isinstance(ended.error, SystemExit):
        return None
    code = ended.error.code
    return code & 0xFF if isinstance(code, int) else FAILED
