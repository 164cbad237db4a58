"""What the words of a `drill` command select; a word that selects nothing is refused with what comes close."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rankdrill.errors import UsageError, describe
from rankdrill.outputs import check_output

if TYPE_CHECKING:
    from rankdrill.conformance import Adapter
    from rankdrill.conformance.kit.answers import Wanted

__all__ = [
    "check_faults",
    "check_seconds",
    "choose_adapters",
    "choose_output",
    "choose_payloads",
    "choose_sizes",
    "choose_wanted",
    "is_suite",
    "refuse",
]

_ASKED = (2, 3)  # ranks, where nobody says how many
_REMEDY = "give module:attribute of a rankdrill.conformance.Adapter, or of a class that conformance(...) made"
_MAX_SIZE = 64  # of a drilled world: every rank position is struck, so cases grow with its square


def refuse(what: str, value: str, known: Iterable[str], remedy: str = "") -> UsageError:
    """The error for a `value` that is none of `known`, with the closest of them."""
    names = sorted(known)
    close = difflib.get_close_matches(value, names, n=3, cutoff=0.5) or [name for name in names if value in name][:3]
    hint = f"did you mean {' or '.join(close)}?" if close else f"choose from {', '.join(names)}"
    return UsageError(f"unknown {what} {value!r}: {hint}" + (f" {remedy}" if remedy else ""))


def choose_adapters(names: Sequence[str]) -> dict[str, Adapter]:
    """The adapters called `names`, by name; all of rankdrill's own if there are none.

    ``module:attribute`` is anybody's `Adapter`, or the class that `conformance` made of one.
    """
    from rankdrill.conformance.paths import FOREIGN, OURS

    chosen: dict[str, Adapter] = {}
    known = OURS | FOREIGN
    for name in names or OURS:
        if name in known:
            chosen[name] = known[name]
        elif ":" in name:
            chosen[name] = _adapter_of(name)  # by what it is called on the command line, which repeats a case
        else:
            remedy = "(rankdrill drill --list shows all; module:attribute is your own Adapter)"
            raise refuse("path", name, known, remedy)
    return chosen


def choose_wanted(
    adapters: dict[str, Adapter], ranks: str | None, asked: Sequence[str], *, faults: bool
) -> list[Wanted]:
    """What is to be asked: what `asked` names; else, where no `faults` are chosen, all that others' gathers promise.

    Classes that `conformance` made have sizes of their own, for which `ranks` may be given.
    """
    from rankdrill.conformance.kit.answers import Wanted, conformed

    names = [name for name in adapters if asked or (":" in name and not faults)]
    wanted = []
    for name in names:
        its = conformed(_imported(name)) if ":" in name else None
        sizes = choose_sizes(ranks) if ranks is not None else its[1] if its is not None else _ASKED
        wanted.append(Wanted(name, adapters[name], sizes, asked))
    return wanted


def is_suite(name: str) -> bool:
    """Whether `name` is that of a class that `conformance` made: it is asked, and not struck unless one says how."""
    from rankdrill.conformance.kit.answers import conformed

    return ":" in name and conformed(_imported(name)) is not None


def _adapter_of(name: str) -> Adapter:
    from rankdrill.conformance import Adapter
    from rankdrill.conformance.kit.answers import conformed

    found = _imported(name)
    its = conformed(found)
    if its is not None:
        return its[0]
    if not isinstance(found, Adapter):
        kind = type(found).__name__
        raise UsageError(f"--path {name!r} is a {kind}; {_REMEDY}")
    return found


def _imported(name: str) -> object:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute or module_name.startswith("."):
        raise UsageError(f"--path {name!r}: {_REMEDY}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` has it; the ranks take it over
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (Exception, SystemExit) as error:  # a module may do anything when it is imported
        raise UsageError(f"--path {name!r}: {describe(error)}; {_REMEDY}") from error


def choose_sizes(text: str) -> tuple[int, ...]:
    """``2,4`` → ``(2, 4)``."""
    sizes: list[int] = []
    for word in text.split(","):
        try:
            size = int(word)
        except ValueError:
            raise UsageError(f"--ranks {text!r}: {word!r} is no number; give world sizes such as 2,4") from None
        if not 1 <= size <= _MAX_SIZE:
            raise UsageError(f"--ranks {text!r}: a drilled world has 1 to {_MAX_SIZE} ranks, not {size}")
        sizes.append(size)
    return tuple(dict.fromkeys(sizes))


def choose_payloads(names: Sequence[str], adapters: dict[str, Adapter]) -> tuple[str, ...]:
    """The payloads called `names`, each known to at least one adapter."""
    known = {payload for adapter in adapters.values() for payload in adapter.payloads}
    for name in names:
        if name not in known:
            raise refuse("payload", name, known)
    return tuple(names)


def choose_output(option: str, name: str | None) -> Path | None:
    """The file to write to; refused now, not after minutes of drilling, where it cannot be written."""
    return None if name is None else check_output(option, name)


def check_seconds(option: str, value: float | None) -> None:
    """Refuse a time that is none."""
    if value is not None and not value > 0:
        raise UsageError(f"{option} {value}: give seconds above 0")


def check_faults(words: Iterable[str]) -> None:
    """Refuse a single word that is no strike; a line of a plan says itself what is wrong with it."""
    from rankdrill.conformance.case import NO_FAULT
    from rankdrill.conformance.strikes import known_strikes

    known = (*known_strikes(), NO_FAULT)
    for word in words:
        if word.isidentifier() and word not in known:
            raise refuse("fault", word, known, "(rankdrill drill --list explains them)")
