"""The kit tells sound gathers from such that break a promise, and says which promise it is."""

from __future__ import annotations

import pytest

from rankdrill.conformance.kit.asking import Asking
from rankdrill.conformance.kit.catalogue import questions_for
from rankdrill.conformance.kit.suite import described
from rankdrill.conformance.promises import Promise
from tests.conformance.mistakes import MISTAKES, Mistake
from tests.conformance.population import MISTAKEN, SOUND, Gather

SIZES = (2, 3)


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_gather_keeps_what_it_promises(name: str) -> None:
    gather, promises = SOUND[name]
    adapter = described(gather, promises=promises)
    asked = [question for question in questions_for(adapter, SIZES) if question.promise in adapter.promises]
    with Asking(adapter) as asking:
        complaints = {f"{question.promise} {question.id}": asking.ask(question) for question in asked}
    assert {asked: complaint for asked, complaint in complaints.items() if complaint} == {}


@pytest.mark.parametrize("gather", MISTAKEN, ids=lambda gather: gather.__name__)
def test_a_mistake_breaks_the_promise_that_it_should(gather: Gather) -> None:
    adapter = described(gather)
    broken = Promise(MISTAKEN[gather])
    asked = [question for question in questions_for(adapter, SIZES) if question.promise is broken]
    with Asking(adapter) as asking:
        complaints = (asking.ask(question) for question in asked)
        assert next(filter(None, complaints), None) is not None


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.gather.__name__}-{mistake.asked}")
def test_the_question_that_is_meant_for_a_mistake_finds_it(mistake: Mistake) -> None:
    adapter = described(mistake.gather, **mistake.more)
    of_it = (question for question in questions_for(adapter, SIZES) if question.promise == mistake.promise)
    asked = [question for question in of_it if mistake.asked in question.name]
    with Asking(adapter) as asking:
        assert any(map(asking.ask, asked)), asked


def test_what_goes_wrong_beside_another_job_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = described(SOUND["torch's"][0])
    question = next(question for question in questions_for(adapter, (2,)) if question.beside)

    def broken(*_: object, **__: object) -> str:
        raise RuntimeError("no ranks to be had")

    with Asking(adapter) as asking:
        monkeypatch.setattr(asking, "_ask", broken)
        with pytest.raises(RuntimeError, match="no ranks to be had"):
            asking.ask(question)
