"""The command ``python -m rankdrill.record``: it records the process, and then is the script."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence

from rankdrill.errors import UsageError
from rankdrill.recording.children import also_in_children
from rankdrill.recording.recording import DEFAULT_BYTES
from rankdrill.recording.starting import DIRECTORY_VARIABLE, HANG_VARIABLE, record

__all__ = ["main"]

DEFAULT_DIRECTORY = "rankdrill-record"
_MIB = 1 << 20


def main(arguments: Sequence[str] | None = None) -> None:
    """Record this process, and those that it spawns with torch, and run the script in it as ``python`` does."""
    chosen = _parser().parse_args(arguments)
    directory = os.path.abspath(chosen.to or os.environ.get(DIRECTORY_VARIABLE) or DEFAULT_DIRECTORY)
    size = int(chosen.size * _MIB)
    try:
        record(directory, size=size, hang_after=chosen.hang_after)
    except UsageError as error:
        raise SystemExit(f"rankdrill: {error}") from None
    also_in_children(directory, size, chosen.hang_after)
    sys.argv = [chosen.script, *chosen.args]
    folder = os.getcwd() if chosen.module else os.path.dirname(os.path.abspath(chosen.script))
    if not sys.flags.safe_path:
        sys.path[:1] = [folder]
    if chosen.module:
        runpy.run_module(chosen.script, run_name="__main__", alter_sys=True)
    else:
        # By its whole path, as python itself does: whoever explains it may be in another directory.
        runpy.run_path(os.path.abspath(chosen.script), run_name="__main__")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rankdrill.record", description="Run SCRIPT, and write down what its ranks do with each other."
    )
    default = f"default: that of {DIRECTORY_VARIABLE}, else {DEFAULT_DIRECTORY}"
    parser.add_argument("--to", metavar="DIRECTORY", help=f"where to ({default})")
    parser.add_argument(
        "--size",
        metavar="MIB",
        type=float,
        default=DEFAULT_BYTES / _MIB,
        help="for the newest steps of each process (default: %(default)g)",
    )
    parser.add_argument(
        "--hang-after",
        metavar="S",
        type=float,
        help="have ranks that hang, or that have not moved for so many seconds, reported there with their stacks, by a "
        f"process that watches them (default: what {HANG_VARIABLE} says, else nobody watches)",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("args", metavar="ARGS", nargs=argparse.REMAINDER)
    return parser
