"""The terminal of this session, lent to one rank with `--pdb-rank`."""

from __future__ import annotations

import os
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from rankdrill.plugin.commands import Lent

__all__ = ["DEBUG_S", "lend_terminal", "lent", "tell_of_pdb_rank", "without_pdb"]

DEBUG_S = 86400.0
"""The deadline of every test with `--pdb-rank`: somebody sits at the prompt, who ends it if need be."""
_LENT = pytest.StashKey[Lent]()


def lend_terminal(config: pytest.Config, rank: int) -> None:
    """Keep this process's standard input and output for `rank`; to be called before pytest captures them."""
    if rank < 0:
        raise pytest.UsageError(f"--pdb-rank={rank}: ranks are numbered from 0")
    if getattr(config.known_args_namespace, "numprocesses", None):
        raise pytest.UsageError("--pdb-rank needs the terminal, which workers of pytest-xdist do not have; use -n0")
    kept = [os.dup(fd) for fd in (0, 1)]
    modes = None
    with suppress(termios.error):  # not a terminal
        modes = termios.tcgetattr(kept[0])

    def give_back() -> None:
        if modes is not None:  # a rank that was killed at its prompt left them as the prompt needs them
            termios.tcsetattr(kept[0], termios.TCSADRAIN, modes)
        for fd in kept:
            os.close(fd)

    config.add_cleanup(give_back)
    # Ranks descend from another process, in a session of its own: they open what this one has open.
    config.stash[_LENT] = Lent(rank, *(f"/proc/{os.getpid()}/fd/{fd}" for fd in kept))


def lent(config: pytest.Config) -> Lent | None:
    """What was kept for a rank."""
    return config.stash.get(_LENT, None)


@contextmanager
def without_pdb(config: pytest.Config) -> Generator[None]:
    """Keep `--pdb` from opening its prompt in this process: the frames of a test on ranks are theirs."""
    invoke = config.pluginmanager.get_plugin("pdbinvoke")
    if invoke is None:
        yield
        return
    config.pluginmanager.unregister(invoke)
    try:
        yield
    finally:
        config.pluginmanager.register(invoke, "pdbinvoke")


def tell_of_pdb_rank(item: Any) -> None:
    """Say what would open a prompt where `item` has just failed."""
    reporter: Any = item.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not item.config.getoption("usepdb") or lent(item.config) is not None:
        return
    culprits = item.outcome.culprits if item.outcome is not None else ()
    rank = culprits[0] if culprits else 0
    reporter.ensure_newline()
    reporter.write_line(f"--pdb opens no prompt for a test on ranks; with --pdb-rank={rank} rank {rank} gets one")
