"""A score as the pytest file that a person would have written."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Sequence

from rankdrill.diagnosis import FindingKind
from rankdrill.replay.merging import Line, in_blocks, merged
from rankdrill.replay.score import End, Score
from rankdrill.replay.staging import staged
from rankdrill.replay.statements import Groups, statement
from rankdrill.replay.ways import Ways, condition, plain
from rankdrill.step import FILE_LOCKS, NO_SEQUENCE

__all__ = ["pytest_file"]

WIDTH = 110  # of a line of the docstring
_WAIT = "while works: works.pop(0).wait()"
_CALLS = ("dist.", "rank.store.", "flock(")
_TAKEN_TWICE = """lock = threading.Lock()
with lock:
    lock.acquire()  # which it has itself taken"""
_COUNTED = frozenset({FindingKind.MISSING, FindingKind.EXTRA})
_PARTED = frozenset({FindingKind.GROUP, FindingKind.CALL_ORDERING})

_HEAD = '''"""{verdict}

Made by ``rankdrill replay``; each call is followed by the line that it was made from.
{cut}"""

{imports}

@pytest.mark.ranks({size})
def test_again(rank):
'''


def pytest_file(score: Score) -> str:
    """A self-contained pytest file that plays `score`."""
    score = staged(score)
    groups = Groups(score)
    extra = score.culprits if score.kind == FindingKind.EXTRA else ()
    by_number = score.kind not in _COUNTED
    lines = merged({part.rank: part.calls for part in score.parts}, first=extra, by_number=by_number)
    issues = ["works = []"] if any(line.issued for line in lines) else []
    issues += ["locked = []"] if any(call.op in FILE_LOCKS for part in score.parts for call in part.calls) else []
    body = [*issues, *(groups.made() if groups.at_once else []), *_blocks(lines, groups, score), *_endings(score)]
    used = "\n".join(body)
    imports = [f"import {each}" for each in ("fcntl", "os", "threading", "time") if f"{each}." in used]
    imports += [""] * bool(imports) + ["import pytest"]
    imports += ["import torch"] * ("torch." in used) + ["import torch.distributed as dist"] * ("dist." in used)
    cut = "".join(f"\n{_sentence(line)}" for line in (*score.cut, *score.assumed))
    head = _HEAD.format(
        verdict=plain(score.verdict or "What ranks did, again"),
        cut=f"{cut}\n" if cut else "",
        imports="\n".join(imports) + "\n",
        size=score.world_size,
    )
    return head + textwrap.indent(used or "pass", "    ") + "\n"


def _blocks(lines: Sequence[Line], groups: Groups, score: Score) -> Iterator[str]:
    open_to_all = _never_reached_by_others(lines, score, groups)
    for block in in_blocks(lines):
        told = list(_told(block.lines, groups, score, open_to_all))
        if block.times > 1 and any(not line.lstrip().startswith("#") for line in told):
            yield f"for _ in range({block.times}):"
            yield from (f"    {line}" for line in told)
        else:
            yield from told


def _never_reached_by_others(lines: Sequence[Line], score: Score, groups: Groups) -> list[Line]:
    """Lines that not all ranks came to, of which the others are stuck before: there is no need to say who makes them,
    and who reads the file, or diagnoses it, sees a call that ranks are to have in common.
    """
    stuck = {part.rank for part in score.parts if not part.end.how}
    last = {rank: at for at, line in enumerate(lines) for rank in line.ranks}
    return [
        line
        for at, line in enumerate(lines)
        if all(rank in stuck and last.get(rank, at) < at for rank in range(score.world_size) if rank not in line.ranks)
        and (score.kind in _COUNTED or _due(line, lines, groups, score))
    ]


def _due(line: Line, lines: Sequence[Line], groups: Groups, score: Score) -> bool:
    """Whether it is a call of a group of all ranks, of which the others have made none with its number."""
    _, call = line.calls[0]
    if score.kind in _PARTED and any({*side} & {*line.ranks} for side in score.sides) and _another_side(line, score):
        return False
    if call.number == NO_SEQUENCE or any(made.group != call.group for _, made in line.calls):
        return False
    made = {
        rank
        for other in lines
        for rank, each in other.calls
        if each.group == call.group and each.number >= call.number and rank not in line.ranks
    }
    return groups.is_of_all(call.group) and not made


def _another_side(line: Line, score: Score) -> bool:
    """Whether some that do not make it are said to have done something else in its place."""
    return any({*side}.isdisjoint(line.ranks) for side in score.sides)


def _told(lines: Sequence[Line], groups: Groups, score: Score, open_to_all: Collection[Line]) -> Iterator[str]:
    ways = Ways(score.world_size)
    waiting = False
    for line in lines:
        said = statement(line, groups)
        if not said:
            continue
        if waiting and not line.issued:
            yield from ways.told()
            yield _WAIT
            waiting = False
        waiting = waiting or (line.issued and line.waited)
        site = next((call.site for _, call in line.calls if call.site), "")
        told = _from_there(said, site)
        if len(line.ranks) == score.world_size or line in open_to_all:
            yield from ways.told()
            yield from told
            continue
        if not ways.take(line.ranks, told, apart=line.instead or score.kind not in _COUNTED):
            yield from ways.told()
            ways.take(line.ranks, told)
    yield from ways.told()
    left = any(line.issued and not line.waited for line in lines)
    if waiting or (left and score.kind != FindingKind.REQUEST_LEAK):
        yield _WAIT


def _from_there(said: str, site: str) -> list[str]:
    """The lines of a statement; at the call stands where it is from."""
    lines = said.splitlines()
    at = next(
        (at for at, line in enumerate(lines) if any(word in line for word in ("dist.", "rank.store.", "flock("))), 0
    )
    lines[at] += f"  # {plain(site)}" if site else ""
    return lines


def _endings(score: Score) -> Iterator[str]:
    by_end: dict[End, list[int]] = {}
    for part in score.parts:
        by_end.setdefault(part.end, []).append(part.rank)
    for end, ranks in by_end.items():
        by_itself = score.kind == FindingKind.DEADLOCK and set(ranks) <= set(score.culprits) and "lock" in end.text
        if last := _TAKEN_TWICE if by_itself else _ending(end):
            yield f"if {condition(tuple(ranks), score.world_size)}:"
            yield from textwrap.indent(last, "    ").splitlines()


def _ending(end: End) -> str:
    match end.how:
        case "raised":
            return f"raise RuntimeError({end.text[:200]!r})"
        case "killed":
            return f"os.kill(os.getpid(), {end.code}){_remark(end)}"
        case "exited":
            return f"os._exit({end.code}){_remark(end)}"
        case "elsewhere":
            return f"time.sleep(3600)  # {plain(end.text) or 'in no call'}"
    return ""


def _remark(end: End) -> str:
    return f"  # {plain(end.text)}" if end.text else ""


def _sentence(text: str) -> str:
    said = textwrap.fill(plain(text[:1].upper() + text[1:]), WIDTH)
    return said if said.endswith((".", "…")) else f"{said}."
