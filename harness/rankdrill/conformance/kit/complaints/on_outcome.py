"""What is wrong with the answer to a question, in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from rankdrill.conformance.kit.complaints.guesses import TOLD, with_best
from rankdrill.conformance.kit.complaints.hints import hint_on
from rankdrill.conformance.kit.on_rank.script import Heard, Told
from rankdrill.conformance.kit.questions.question import Question
from rankdrill.conformance.kit.samples.hostile import TOO_LARGE
from rankdrill.conformance.promises import Promise
from rankdrill.diagnosis import name_ranks
from rankdrill.errors import ContractBroken
from rankdrill.worlds import Outcome, Status, Verdict

__all__ = ["complaint_on", "mistake_in"]

_COLOURED = re.compile(r"\x1b\[[0-9;]*m")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_OF_A_KIND = re.compile(rf"({Verdict.HANG}|{Verdict.BROKEN}): [a-z ]+")
_NOTICED = ContractBroken.__name__
_RAISED = "raised though nothing was broken, on "
_LONG = 300  # characters of an error's message


def complaint_on(question: Question, outcome: Outcome) -> str:
    """In a few lines; empty if nothing is wrong."""
    told = {rank.rank: rank.value for rank in outcome.ranks if rank.status is Status.RETURNED}
    left = "\n".join(f"rank {rank}: {what}" for rank, all_told in told.items() for what in all_told.left)
    if question.promise is Promise.CLEAN and question.spoiled:
        return left  # whether all of them raised, and can go on, is another promise
    if not question.spared and not _all_came_out(outcome):
        said = _first_heard(question, told)
        return _lines(_apart(question, told), *said, outcome.summary(), hint_on(question, outcome))
    stuck = [rank.rank for rank in outcome.ranks if rank.status is Status.STUCK and not rank.by_plan]
    if stuck:
        return _lines(
            f"{name_ranks(stuck)} never came out of the call: {outcome.summary()}", *_first_heard(question, told)
        )
    if any(rank.status in (Status.DIED, Status.RAISED) and not rank.by_plan for rank in outcome.ranks):
        return outcome.summary()
    of_calls = _of_calls(question, told, outcome)
    # That what came is wrong is another promise, too; where nothing came there is nothing to be clean after.
    return left if question.promise is Promise.CLEAN and _RAISED not in of_calls else of_calls or left


def mistake_in(complaint: str) -> str:
    """What `complaint` tells of that may be the same whatever is asked: an error where nothing was broken, what a
    wrong result is, or of which kind a hang or a broken contract; empty if it tells of none."""
    first = _ADDRESS.sub("", next(iter(complaint.splitlines()), ""))
    if found := _OF_A_KIND.match(first):
        return found[0]
    return first.partition(_RAISED)[2].partition(": ")[2] or first.partition(TOLD)[2]


def _of_calls(question: Question, told: dict[int, Told], outcome: Outcome) -> str:
    for number, call in enumerate(question.calls):
        heard = {rank: said for rank, all_told in told.items() for said in all_told.heard if said.call == number}
        either = question.spared or call.spoiled == TOO_LARGE
        judge = _all_or_nothing if either else _all_right if call.spoils is None else _all_raise
        complaint = judge(heard) or (_blames(heard, call.spoils) if call.spoils is not None else "")
        if complaint:
            return _lines(f"call {number + 1} of {len(question.calls)}: {complaint}", hint_on(question, outcome))
    changed = (f"rank {rank}: {what}" for rank, all_told in told.items() for what in all_told.changed)
    return next(changed, "")


def _lines(*lines: str) -> str:
    return "\n".join(filter(None, lines))


def _all_came_out(outcome: Outcome) -> bool:
    return all(rank.status is Status.RETURNED and rank.finding is None for rank in outcome.ranks)


def _first_heard(question: Question, told: dict[int, Told]) -> Iterator[str]:
    """Of a run that did not end: what ranks that came out of it have to say."""
    said = (
        f"rank {rank}, call {heard.call + 1}: {_short(heard.error) or with_best(heard.wrong, [heard.like])}"
        for rank, all_told in told.items()
        for heard in all_told.heard
        if heard.error or heard.wrong
    )
    for _, line in zip(range(2), said, strict=False):
        yield line


def _apart(question: Question, told: dict[int, Told]) -> str:
    """Which ranks raised where others did not, in the first call in which some did, of themselves."""
    for number, call in enumerate(question.calls):
        members = call.members or range(question.size)
        heard = {rank: said for rank, all_told in told.items() for said in all_told.heard if said.call == number}
        raised = [rank for rank in members if rank in heard and heard[rank].error]
        others = [rank for rank in members if rank not in raised]
        if any(heard[rank].error.startswith(_NOTICED) for rank in raised):
            return ""  # what ranks did not agree on is told by the outcome
        if raised and others:
            return (
                f"in call {number + 1} of {len(question.calls)} {name_ranks(raised)} raised alone, and "
                f"{name_ranks(others)} waited for it in that call, or took its next for this one"
            )
    return ""


_Judge = Callable[[dict[int, Heard]], str]


def _all_right(heard: dict[int, Heard]) -> str:
    wrong = [_first_wrong(heard)]
    raised = [f"{_RAISED}rank {rank}: {_short(said.error)}" for rank, said in heard.items() if said.error]
    shared = [f"on rank {rank} {said.shared}" for rank, said in heard.items() if said.shared]
    return next(filter(None, (*wrong, *raised, *shared)), "")


def _first_wrong(heard: dict[int, Heard]) -> str:
    wrong = {rank: said for rank, said in heard.items() if said.wrong}
    some_right = any(not said.wrong and not said.error and not said.idle for said in heard.values())
    told = (
        f"wrong, on rank {rank}: {with_best(said.wrong, [each.like for each in wrong.values()], some_right=some_right)}"
        for rank, said in wrong.items()
    )
    return next(told, "")


def _all_raise(heard: dict[int, Heard]) -> str:
    returned = [rank for rank, said in heard.items() if not said.error]
    if not returned:
        return ""
    if len(returned) == len(heard):
        return "every rank returned, though one could not contribute"
    raised = [rank for rank in heard if rank not in returned]
    return f"{name_ranks(returned)} returned, {name_ranks(raised)} raised {_short(heard[raised[0]].error)}"


def _blames(heard: dict[int, Heard], spoils: int) -> str:
    """What is wrong with whom the errors blame, where they are such that can."""
    for rank, said in heard.items():
        if said.blames is not None and spoils not in said.blames:
            blamed = name_ranks(said.blames) if said.blames else "nobody"
            return f"rank {spoils} could not contribute, and rank {rank} blames {blamed}: {_short(said.error)}"
    return ""


def _all_or_nothing(heard: dict[int, Heard]) -> str:
    returned = [rank for rank, said in heard.items() if not said.error]
    raised = [rank for rank in heard if rank not in returned]
    wrong = _first_wrong(heard)
    if wrong or not (returned and raised):
        return wrong
    return f"{name_ranks(returned)} returned, {name_ranks(raised)} raised {_short(heard[raised[0]].error)}"


def _short(message: str) -> str:
    line = " ".join(_COLOURED.sub("", message).split())
    return line if len(line) <= _LONG else f"{line[:_LONG]}…"
