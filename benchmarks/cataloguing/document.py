"""The catalogue as a page: of each kind of mistake one program, and what rankdrill says of it."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.catalogue.misses import known_misses
from tests.catalogue.programs import KINDS, Program
from tests.catalogue.scoring import Judged

__all__ = ["MEANINGS", "WITHOUT_SECTION", "page", "source_of"]

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 16  # of a program that is shown
MEANINGS = {
    "call ordering": "Ranks meet in one call and are in different ones: another order, or another branch.",
    "missing call": "A rank leaves out a collective that the others make.",
    "extra call": "A rank makes a collective more than the others.",
    "operator mismatch": "Ranks reduce by different operators; the backend adds garbage and says nothing.",
    "root mismatch": "Ranks name different roots.",
    "datatype mismatch": "The tensors, or the two ends of a message, are of different types.",
    "size mismatch": "They have different numbers of elements, or splits that do not fit.",
    "group mismatch": "The right call on the wrong group, or a group made of other members.",
    "deadlock": "Each rank waits for the next, and all are right by themselves.",
    "unmatched message": "A send without its receive, or a receive without its send; another peer or tag.",
    "message race": "Two messages may come first, and what is done with them depends on which does.",
    "request leak": "Asynchronous work that nobody waits for.",
    "leaked group": "Groups that are made again and again and never destroyed.",
    "input hazard": "A tensor is read or written while an asynchronous call works on it.",
    "memory layout": "A view with gaps, which gloo takes for contiguous, and sends and overwrites what lies in them; "
    "or tensors that lie in memory in different orders, which it mixes up.",
    "lost rank": "A rank raises, is killed or leaves, and the others wait.",
    "missing key": "A rank waits for a key of the store that nobody sets.",
    "lost update": "Two ranks read a key, and the second to write undoes what the first wrote.",
    "stuck rank": "A rank computes, sleeps or waits for something else, and never comes.",
}
WITHOUT_SECTION = {
    "device mismatch": "it takes a group with a backend for each of two devices, and a GPU for the second",
}
"""Kinds that rankdrill tells of which there is no program, and why."""
_HEAD = """\
# The catalogue of mistakes

`tests/catalogue` holds {mistakes} programs with one mistake each and {correct} correct ones that resemble them.
Each mistake has its truth beside it: its kind, the guilty ranks, the guilty lines. `python benchmarks/catalogue.py`
runs them all and scores what is said: *recall*, the share of mistakes that are noticed; *specificity*, the share of
correct programs that pass; *strict*, the share of mistakes that are told in exactly one finding of the right kind,
with exactly the guilty ranks and a guilty line. The README has these of rankdrill, plain gloo,
`TORCH_DISTRIBUTED_DEBUG=DETAIL` and torch's flight recorder.

Below stands one program of each kind, guilty lines marked, with what rankdrill says of it; then which programs are
not told strictly right, and why. `python benchmarks/catalogue.py --only rankdrill --document docs/catalogue.md`
writes this page.

Of these kinds there is no program: {without}.
"""


def page(judged: Sequence[Judged]) -> str:
    """The page, in Markdown, from a run of all programs under rankdrill."""
    mistakes = [each for each in judged if each.program.truth is not None]
    without = "; ".join(f"*{kind}*, since {why}" for kind, why in WITHOUT_SECTION.items())
    parts = [_HEAD.format(mistakes=len(mistakes), correct=len(judged) - len(mistakes), without=without)]
    missed = known_misses()
    for kind in KINDS:
        of_kind = [each for each in mistakes if each.program.truth is not None and each.program.truth.kind == kind]
        parts.extend(_section(kind, of_kind, missed))
    return "\n".join(parts) + "\n"


def source_of(program: Program) -> str:
    """The program as it stands in its file, without its decorator."""
    lines = textwrap.dedent(inspect.getsource(program.body)).splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("def "))
    return "\n".join(lines[first:])


def _section(kind: str, judged: Sequence[Judged], missed: Mapping[str, str]) -> Iterator[str]:
    strict = [each for each in judged if each.right and each.strict]
    yield f"## {kind.capitalize()}\n"
    yield f"{MEANINGS[kind]} {len(strict)} of {len(judged)} are told strictly right.\n"
    shown = next((each for each in strict if len(source_of(each.program).splitlines()) <= MOST_LINES), None)
    if shown is not None:
        yield f"```python\n# {shown.program.name}, on {shown.program.ranks} ranks\n{source_of(shown.program)}\n```\n"
        yield f"```text\n{_report(shown)}\n```\n"
    for why in dict.fromkeys(missed[each.program.name] for each in judged if each.program.name in missed):
        names = [f"`{each.program.name}`" for each in judged if missed.get(each.program.name) == why]
        yield f"Not told right, since {why}: {', '.join(names)}.\n"


def _report(judged: Judged) -> str:
    """What was said, a line for each part of it, with paths as a reader of the repository knows them."""
    return judged.verdict.text.replace(f"{ROOT}/", "").replace("; ", "\n")
