"""``rankdrill drill`` of a gather that promises something: whether it keeps it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rankdrill.cli.terminal import terminal

if TYPE_CHECKING:
    from rankdrill.conformance.kit.answers import Answer, Wanted

__all__ = ["ask_all"]

_SAID_EVERY_S = 10.0


def ask_all(wanted: Sequence[Wanted]) -> list[Answer]:
    """Ask everything that is wanted, and print what came of it. Raises `KeyboardInterrupt` with that printed, too."""
    from rankdrill.report import print_profiles

    given: list[Answer] = []
    total = sum(len(each.questions()) for each in wanted)
    try:
        _ask(wanted, given, total)
    finally:
        out = terminal()
        out.print()
        print_profiles(given, out)
        failed = sum(answer.failed for answer in given)
        style = "bold red" if failed else "bold green"
        out.print(f"\n[{style}]{failed} of {len(given)} questions show a broken promise[/]")
    return given


def _ask(wanted: Sequence[Wanted], given: list[Answer], total: int) -> None:
    from rankdrill.conformance.kit.answers import answers

    err, said = terminal(stderr=True), 0.0
    for each in wanted:
        for answer in answers(each):
            given.append(answer)
            if time.monotonic() - said >= _SAID_EVERY_S:
                said = time.monotonic()
                err.print(f"asking: {len(given)} of {total} questions", highlight=False)
