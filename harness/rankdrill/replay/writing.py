"""A score as the pytest file that a person would have written."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Sequence

from rankdrill.diagnosis import FindingKind
from rankdrill.replay.merging import Line, in_blocks, merged
from rankdrill.replay.score import End, Score
from rankdrill.replay.statements import Groups, among, statement

__all__ = ["pytest_file"]

WIDTH = 110  # of a line of the docstring
_WAIT = "while works: works.pop(0).wait()"
_COUNTED = frozenset({FindingKind.MISSING, FindingKind.EXTRA})

_HEAD = '''"""{verdict}

Made by ``rankdrill replay``; each call is followed by the line that it was made from.
{cut}"""

{imports}

@pytest.mark.ranks({size})
def test_again(rank):
'''


def pytest_file(score: Score) -> str:
    """A self-contained pytest file that plays `score`."""
    groups = Groups(score)
    extra = score.culprits if score.kind == FindingKind.EXTRA else ()
    lines = merged({part.rank: part.calls for part in score.parts}, first=extra)
    issues = ["works = []"] if any(line.issued for line in lines) else []
    body = [*issues, *(groups.made() if groups.at_once else []), *_blocks(lines, groups, score), *_endings(score)]
    used = "\n".join(body)
    imports = [f"import {each}" for each in ("os", "time") if f"{each}." in used]
    imports += [""] * bool(imports) + ["import pytest"]
    imports += ["import torch"] * ("torch." in used) + ["import torch.distributed as dist"] * ("dist." in used)
    cut = "".join(f"\n{_sentence(line)}" for line in (*score.cut, *score.assumed))
    head = _HEAD.format(
        verdict=_plain(score.verdict or "What ranks did, again"),
        cut=f"{cut}\n" if cut else "",
        imports="\n".join(imports) + "\n",
        size=score.world_size,
    )
    return head + textwrap.indent(used or "pass", "    ") + "\n"


def _blocks(lines: Sequence[Line], groups: Groups, score: Score) -> Iterator[str]:
    open_to_all = _never_reached_by_others(lines, score) if score.kind in _COUNTED else ()
    for block in in_blocks(lines):
        told = list(_told(block.lines, groups, score, open_to_all))
        if block.times > 1 and any(not line.lstrip().startswith("#") for line in told):
            yield f"for _ in range({block.times}):"
            yield from (f"    {line}" for line in told)
        else:
            yield from told


def _never_reached_by_others(lines: Sequence[Line], score: Score) -> list[Line]:
    """Lines that not all ranks came to, of which the others are stuck before: there is no need to say who makes them,
    and who reads the file, or diagnoses it, sees a call that ranks are to have in common.
    """
    stuck = {part.rank for part in score.parts if not part.end.how}
    last = {rank: at for at, line in enumerate(lines) for rank in line.ranks}
    return [
        line
        for at, line in enumerate(lines)
        if all(rank in stuck and last.get(rank, at) < at for rank in range(score.world_size) if rank not in line.ranks)
    ]


def _told(lines: Sequence[Line], groups: Groups, score: Score, open_to_all: Collection[Line]) -> Iterator[str]:
    """Those of the same ranks stand below one condition, those of all others after it below its ``else``."""
    below: tuple[int, ...] = ()
    waiting = False
    for line in lines:
        said = statement(line, groups)
        if not said:
            continue
        if waiting and not line.issued:
            yield _WAIT
            below, waiting = (), False
        waiting = waiting or (line.issued and line.waited)
        site = next((call.site for _, call in line.calls if call.site), "")
        said += f"  # {_plain(site)}" if site else ""
        if len(line.ranks) == score.world_size or line in open_to_all:
            yield said
            below = ()
            continue
        if line.ranks != below:
            others = len(below) + len(line.ranks) == score.world_size and not {*below} & {*line.ranks}
            yield "else:" if others else f"if {_among(line.ranks, score.world_size)}:"
        below = line.ranks
        yield f"    {'pass  ' if said.startswith('#') else ''}{said}"
    if waiting:
        yield _WAIT


def _endings(score: Score) -> Iterator[str]:
    by_end: dict[End, list[int]] = {}
    for part in score.parts:
        by_end.setdefault(part.end, []).append(part.rank)
    for end, ranks in by_end.items():
        if last := _ending(end):
            yield f"if {_among(tuple(ranks), score.world_size)}:"
            yield f"    {last}"


def _among(ranks: Sequence[int], size: int) -> str:
    left = sorted({*range(size)} - {*ranks})
    if not left:
        return "True"
    if len(left) == 1 and size > 2:
        return f"rank.index != {left[0]}"
    return among(ranks) if len(ranks) <= len(left) else f"rank.index not in ({', '.join(map(str, left))})"


def _ending(end: End) -> str:
    match end.how:
        case "raised":
            return f"raise RuntimeError({end.text[:200]!r})"
        case "killed":
            return f"os.kill(os.getpid(), {end.code})"
        case "exited":
            return f"os._exit({end.code})"
        case "elsewhere":
            return f"time.sleep(3600)  # {_plain(end.text) or 'in no call'}"
    return ""


def _sentence(text: str) -> str:
    said = textwrap.fill(_plain(text[:1].upper() + text[1:]), WIDTH)
    return said if said.endswith((".", "…")) else f"{said}."


def _plain(text: str) -> str:
    """Text that ends no string and no comment."""
    return "".join(char if char.isprintable() else " " for char in text.replace("\\", "/").replace('"', "'"))
