"""From what the ranks saw to one judgement: what came, on whom, and whether that is what a gather promises."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankdrill.conformance.case import Judgement
from rankdrill.conformance.on_rank import RankReport, Seen
from rankdrill.diagnosis import name_ranks
from rankdrill.errors import PeerLost
from rankdrill.worlds import Outcome, Status

__all__ = ["Evidence", "judge"]


_ON_RANKS = re.compile(r"\(on ranks? (\d+(?:, *\d+)*)\)")


@dataclass(frozen=True)
class Evidence:
    """All that a judgement rests on. `struck` are the ranks that the plan strikes, `ended` those of them whose process
    it ends; `files` are the files and segments left on disk.
    """

    outcome: Outcome
    reports: Sequence[RankReport | None]
    struck: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def survivors(self) -> list[int]:
        """The ranks that the plan lets live."""
        return [rank.rank for rank in self.outcome.ranks if rank.rank not in self.ended]


def judge(evidence: Evidence) -> tuple[Judgement, str]:
    """The judgement and its reason in one line. The first call decides, then the second, then what was left behind."""
    firsts = _calls(evidence, second=False)
    verdict = (
        _deaths(evidence)
        or _wrong(firsts)
        or _split(evidence, firsts)
        or _hang(evidence, firsts)
        or _error(evidence, firsts)
        or _unfired(evidence)
        or _second_call(evidence)
        or _left(evidence)
    )
    if verdict is not None:
        return verdict
    if not firsts:
        return Judgement.TOGETHER, "every rank died, as planned"
    seen = next(iter(firsts.values()))
    if not seen.error:
        return Judgement.RIGHT, "every rank received the right result"
    return Judgement.TOGETHER, f"every rank raised {seen.error}, naming {_name(seen.blamed)}"


def _calls(evidence: Evidence, *, second: bool) -> Mapping[int, Seen]:
    """What the surviving ranks saw of one call, where they came out of it."""
    found: dict[int, Seen] = {}
    for rank in evidence.survivors:
        report = evidence.reports[rank]
        seen = None if report is None else report.second if second else report.first
        if seen is not None:
            found[rank] = seen
    return found


_Verdict = tuple[Judgement, str] | None


def _deaths(evidence: Evidence) -> _Verdict:
    if evidence.outcome.harness:
        return Judgement.BROKEN, evidence.outcome.harness
    dead = [rank for rank in evidence.outcome.ranks if rank.status is Status.DIED and rank.rank not in evidence.ended]
    if dead:
        return Judgement.DIED, "; ".join(map(str, dead))
    broken = [rank for rank in evidence.outcome.ranks if rank.status is Status.RAISED]
    if broken:
        return Judgement.BROKEN, "; ".join(map(str, broken))
    return None


def _wrong(seen: Mapping[int, Seen]) -> _Verdict:
    wrong = [f"rank {rank}: {each.wrong}" for rank, each in seen.items() if each.wrong]
    return (Judgement.WRONG, "; ".join(wrong)) if wrong else None


def _split(evidence: Evidence, seen: Mapping[int, Seen]) -> _Verdict:
    raised = [rank for rank, each in seen.items() if each.error]
    returned = [rank for rank, each in seen.items() if not each.error]
    missing = [rank for rank in evidence.survivors if rank not in seen]
    if raised and (returned or missing):
        how = [f"{_name(raised)} raised {_types(seen)}"]
        how += [f"{_name(returned)} returned"] if returned else []
        how += [f"{_name(missing)} never came out"] if missing else []
        return Judgement.ASYMMETRIC, ", ".join(how)
    if len({each.error for each in seen.values()}) > 1:
        return Judgement.ASYMMETRIC, "ranks raised different types: " + "; ".join(
            f"rank {rank} {each.error}" for rank, each in seen.items()
        )
    return None


def _hang(evidence: Evidence, seen: Mapping[int, Seen]) -> _Verdict:
    stuck = [rank for rank in evidence.survivors if rank not in seen]
    if not stuck:
        return None
    return Judgement.HANG, "; ".join(str(evidence.outcome.ranks[rank]) for rank in stuck)


def _error(evidence: Evidence, seen: Mapping[int, Seen]) -> _Verdict:
    for rank, each in ((rank, each) for rank, each in seen.items() if each.error):
        # What the struck rank says of the others counts for nothing: a rank that was stopped lost all of them.
        if each.blamed is None:
            return Judgement.UNNAMED, f"every rank raised {each.error}, which names no rank: {each.message}"
        if not evidence.struck:
            return Judgement.UNNAMED, f"nothing was broken, yet every rank raised {each.error}: {each.message}"
        if rank not in evidence.struck and not _names(each, evidence.struck):
            blames = f"rank {rank} blames {_name(each.blamed)}: {each.message}"
            return Judgement.UNNAMED, f"{_name(evidence.struck)} was struck, and {blames}"
    return None


def _names(seen: Seen, struck: Sequence[int]) -> bool:
    # Where connections only close, a path may be unable to know whom it lost. It may not blame somebody else.
    # Where it was struck as it read what another had written, the error blames the writer and says on whom it was so.
    on = {int(rank) for listed in _ON_RANKS.findall(seen.message) for rank in listed.split(",")}
    if not on.isdisjoint(struck):
        return True
    return not set(struck).isdisjoint(seen.blamed or ()) or (not seen.blamed and seen.error == PeerLost.__name__)


def _unfired(evidence: Evidence) -> _Verdict:
    unfired = evidence.outcome.unfired
    return (Judgement.UNFIRED, "; ".join(unfired)) if unfired else None


def _second_call(evidence: Evidence) -> _Verdict:
    if evidence.ended:
        return None  # the group is a rank short; the aftermath checks the next call in a new world
    seen = _calls(evidence, second=True)
    failed = [f"rank {rank}: {each.error}: {each.message}" for rank, each in seen.items() if each.error]
    if failed:
        return Judgement.SPENT, "; ".join(failed)
    wrong = _wrong(seen)
    if wrong:
        return wrong[0], f"in the next call: {wrong[1]}"
    stuck = [rank for rank, report in enumerate(evidence.reports) if report and not report.done]
    if stuck:
        return Judgement.HANG, "in the next call: " + "; ".join(str(evidence.outcome.ranks[rank]) for rank in stuck)
    return None


def _left(evidence: Evidence) -> _Verdict:
    left = [f"on disk: {name}" for name in evidence.files]
    for rank, report in enumerate(evidence.reports):
        left += [f"rank {rank}: {what}" for what in (report.left if report else ())]
    return (Judgement.LEAKED, "; ".join(left)) if left else None


def _types(seen: Mapping[int, Seen]) -> str:
    return ", ".join(dict.fromkeys(each.error for each in seen.values() if each.error))


def _name(ranks: Sequence[int] | None) -> str:
    return name_ranks(ranks) if ranks else "nobody"
