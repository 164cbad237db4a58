"""The kit tells sound gathers from such that break a promise, and says which promise it is."""

from __future__ import annotations

import pytest

from rankdrill.conformance.kit.asking import Asking
from rankdrill.conformance.kit.questions.catalogue import questions_for
from rankdrill.conformance.kit.suite import described
from rankdrill.conformance.promises import Promise
from rankdrill.errors import UsageError
from tests.conformance.mistakes import MISTAKES, Mistake, each_in_a_directory_of_its_own, keeps_its_file_where_it_fails
from tests.conformance.named import NAMED
from tests.conformance.population import (
    MISTAKEN,
    SOUND,
    Gather,
    by_torch,
    files_of_one_name,
    in_one_tensor,
    of_all_ranks,
    raises_alone,
)
from tests.conformance.sound import SOUND_OF_OTHERS, with_an_error_for_all_beyond
from tests.conformance.uneven import UNEVEN
from tests.covering import thinned

SIZES = (2, 3)


ALWAYS = ("rankdrill's",)  # the others nightly: each is asked a hundred questions and more


@pytest.mark.parametrize(
    "name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.nightly) for name in SOUND]
)
def test_a_sound_gather_keeps_what_it_promises(name: str) -> None:
    gather, promises = SOUND[name]
    adapter = described(gather, promises=promises)
    asked = [question for question in questions_for(adapter, SIZES) if question.promise in adapter.promises]
    with Asking(adapter) as asking:
        complaints = {f"{question.promise} {question.id}": asking.ask(question) for question in asked}
    assert {asked: complaint for asked, complaint in complaints.items() if complaint} == {}


@pytest.mark.parametrize("gather", thinned(SOUND_OF_OTHERS, 2), ids=lambda gather: gather.__name__)
def test_so_does_one_of_other_things_than_objects(gather: Gather) -> None:
    adapter = described(gather, **SOUND_OF_OTHERS[gather])
    without_faults = (Promise.RIGHT, Promise.GROUPS, Promise.APART, Promise.CLEAN)
    asked = [question for question in questions_for(adapter, SIZES) if question.promise in without_faults]
    with Asking(adapter) as asking:
        complaints = {f"{question.promise} {question.id}": asking.ask(question) for question in asked}
    assert {asked: complaint for asked, complaint in complaints.items() if complaint} == {}


@pytest.mark.parametrize("gather", thinned(MISTAKEN, 2), ids=lambda gather: gather.__name__)
def test_a_mistake_breaks_the_promise_that_it_should(gather: Gather) -> None:
    adapter = described(gather)
    broken = Promise(MISTAKEN[gather])
    asked = [question for question in questions_for(adapter, SIZES) if question.promise is broken]
    with Asking(adapter) as asking:
        complaints = (asking.ask(question) for question in asked)
        assert next(filter(None, complaints), None) is not None


@pytest.mark.parametrize(
    "mistake",
    thinned([*MISTAKES, *NAMED, *UNEVEN], 2),
    ids=lambda mistake: f"{mistake.gather.__name__}-{mistake.asked}",
)
def test_the_question_that_is_meant_for_a_mistake_finds_it(mistake: Mistake) -> None:
    adapter = described(mistake.gather, **mistake.more)
    of_it = (question for question in questions_for(adapter, SIZES) if question.promise == mistake.promise)
    asked = [question for question in of_it if mistake.asked in question.name]
    with Asking(adapter) as asking:
        complaint = next(filter(None, map(asking.ask, asked)), "")
        assert complaint, asked
        assert mistake.told in complaint


def test_what_a_failed_call_leaves_is_its_own_affair_unless_it_promises_to_be_contained() -> None:
    adapter = described(keeps_its_file_where_it_fails, promises=("clean",))
    asked = [each for each in questions_for(adapter, SIZES) if each.promise == "clean" and "not load" in each.name]
    with Asking(adapter) as asking:
        assert list(map(asking.ask, asked)) == [""] * len(asked)
        assert asked


def test_what_dress_mends_is_no_payload_that_fails() -> None:
    def failing(**more: object) -> set[str]:
        said = described(by_torch, takes="lists", **more)  # type: ignore[arg-type]
        asked = [each for each in questions_for(said, (2,)) if each.promise is Promise.CONTAINED]
        return {question.name.partition(" on rank")[0] for question in asked}

    assert failing() >= {"a payload that does not load"}
    assert failing(dress=lambda items: [str(item) for item in items]) == {"a payload beyond the bound"}
    assert failing(dress=lambda items: [len(items)]) == set()


def test_what_goes_wrong_beside_another_job_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = described(SOUND["torch's"][0])
    question = next(question for question in questions_for(adapter, (2,)) if question.beside)

    def broken(*_: object, **__: object) -> str:
        raise RuntimeError("no ranks to be had")

    with Asking(adapter) as asking:
        monkeypatch.setattr(asking, "_ask", broken)
        with pytest.raises(RuntimeError, match="no ranks to be had"):
            asking.ask(question)


def _complaint_on(gather: Gather, promise: str, asked: str, **more: object) -> str:
    adapter = described(gather, **more)  # type: ignore[arg-type]
    of_it = (question for question in questions_for(adapter, (2,)) if question.promise == promise)
    with Asking(adapter) as asking:
        return asking.ask(next(question for question in of_it if asked in question.name))


def test_who_asks_all_ranks_for_a_group_is_told_so() -> None:
    assert "a group was to gather, and it asks all ranks: all_gather" in _complaint_on(of_all_ranks, "groups", "half")


def test_who_writes_where_nobody_reads_is_told_so() -> None:
    said = _complaint_on(each_in_a_directory_of_its_own, "right", "small")
    assert "each rank writes into another directory: rank 0 into" in said


def test_who_raises_alone_is_named() -> None:
    said = _complaint_on(raises_alone, "contained", "does not pickle")
    assert said.startswith("in call 1 of 3 rank 1 raised alone, and rank 0 waited for it in that call")


def test_calls_that_meet_only_where_they_follow_at_once_are_right() -> None:
    assert _complaint_on(files_of_one_name, "right", "small") == ""
    assert "is 1, not 0" in _complaint_on(files_of_one_name, "repeatable", "rank 0 slow after its last collective")


def test_of_a_bound_that_is_told_no_payload_is_beyond_it() -> None:
    bounded = described(by_torch, room=10_000)
    assert not {"65536 bytes", "65535 bytes"} & {question.name for question in questions_for(bounded, SIZES)}


@pytest.mark.parametrize("room", thinned([150, 700, 5_000], 3))
def test_nothing_that_is_asked_of_a_bounded_gather_is_beyond_its_bound(room: int) -> None:
    bounded = described(with_an_error_for_all_beyond, room=room)
    asked = [each for each in questions_for(bounded, (2,)) if each.promise in (Promise.RIGHT, Promise.APART)]
    assert {each.promise for each in asked} == {Promise.RIGHT, Promise.APART}
    with Asking(bounded) as asking:
        assert {each.id: complaint for each in asked if (complaint := asking.ask(each))} == {}


def test_a_bound_that_leaves_nothing_to_ask_is_refused() -> None:
    with pytest.raises(UsageError, match="room=10 is too little for takes='objects', of which the plainest"):
        described(by_torch, room=10)


def test_of_tensors_what_is_concatenated_is_one_tensor() -> None:
    said = described(in_one_tensor, takes="equal tensors", gives="concatenated")
    asked = [each for each in questions_for(said, (2,)) if each.promise is Promise.RIGHT and "2ranks" in each.id]
    assert {each.name for each in asked} >= {"a tensor of six numbers", "a view of a tensor"}
    with Asking(said) as asking:
        assert {complaint for each in asked if (complaint := asking.ask(each))} == set()
