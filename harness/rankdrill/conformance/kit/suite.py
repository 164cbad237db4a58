"""`conformance`: a gather's promises as a class of pytest tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from rankdrill.conformance.adapter import Adapter, Setting, takes_all
from rankdrill.conformance.gives import GIVES, NEAR, REDUCED
from rankdrill.conformance.kit.answers import CONFORMED
from rankdrill.conformance.kit.asking import Asking
from rankdrill.conformance.kit.questions.askable import refuse_what_cannot_be_asked
from rankdrill.conformance.kit.questions.catalogue import questions_for
from rankdrill.conformance.kit.questions.question import Question
from rankdrill.conformance.kit.samples.chosen import SAMPLES
from rankdrill.conformance.kit.with_torch import Torch
from rankdrill.conformance.payloads import Payload
from rankdrill.conformance.promises import Promise, checked_promises
from rankdrill.errors import UsageError

__all__ = ["conformance", "described"]

NOT_PROMISED = "not promised"
_OF_NUMBERS = ("dicts of scalars", "dicts of numbers", "numbers")  # as what they come back says little


def conformance(
    gather: Adapter | Callable[..., Any],
    *,
    ranks: Sequence[int] = (2, 3),
    gives: str | Callable[[int, Sequence[Any]], Any] = "list",
    takes: str | Mapping[str, Payload] = "objects",
    promises: Collection[str] | None = None,
    **more: Any,
) -> type:
    """A class of tests that hold `gather` to its promises: assign it to a name that pytest collects.

        TestMyGather = conformance(my_gather, gives="list", promises={"right", "repeatable", "clean"})

    `gather(payload)` or `gather(payload, setting)` is called on every rank of worlds of `ranks` ranks and returns what
    that rank received: `setting` (a `Setting`) has the rank, the group that calls, a directory, a timeout. `gives` says
    what is right: ``"list"`` of all ranks' payloads in rank order, the same on rank 0 alone (``"dst"``), ``"dict"`` by
    rank, all ranks' items in one list, of tensors their rows in one tensor (``"concatenated"``), ``"stacked"`` tensors,
    ``"sum"`` or ``"mean"``, of dicts by key; any of these on rank 0 alone (``"sum at dst"``); or a function of the rank
    and all payloads. `takes` says what payloads are: ``"objects"``, ``"functions"`` that return
    them, ``"dicts"``, ``"lists"``, ``"tensors"``, those of one dtype (``"ragged tensors"``) that differ in nothing but
    their length (``"tensors of rows"``) or in nothing (``"equal tensors"``), ``"dicts of tensors"``, those of the same
    names on all ranks (``"dicts of scalars"``: tensors without dimensions, ``"dicts of numbers"``), ``"numbers"``, or
    payloads of your own by name. `more` are other fields of `Adapter`: `room`, say, where payloads are bounded. Where
    `gather` is an `Adapter`, nothing but `ranks` and `promises` is said beside it. Without `promises` everything is
    promised, or what the `Adapter` says.

    There is one test for each promise and question, named so that one can be selected. What `promises` leaves out is
    asked, too, and its failures are reported as expected: "not promised". Raises `UsageError` for what it does not
    know, and for what `gives` cannot make of what it `takes`.
    """
    adapter = described(gather, gives=gives, takes=takes, promises=promises, **more)
    asking, torch = Asking(adapter), Torch()

    def teardown_class(cls: type) -> None:
        asking.close()
        torch.close()

    # Not before pytest collects: every rank imports the module of the adapter, and asks nothing.
    questions = cache(lambda: questions_for(adapter, ranks))

    def pytest_generate_tests(self: object, metafunc: Any) -> None:
        of_it = [question for question in questions() if question.promise == metafunc.function.about]
        metafunc.parametrize("question", of_it, ids=lambda question: question.id)

    body: dict[str, Any] = {
        CONFORMED: (adapter, tuple(ranks)),
        "pytest_generate_tests": pytest_generate_tests,
        "teardown_class": classmethod(teardown_class),
        "__doc__": f"What {adapter.name} promises.",
    }
    for promise in Promise:
        body[f"test_{promise}"] = _test_of(promise, asking, torch, promised=promise in adapter.promises)
    body["__module__"] = sys._getframe(1).f_globals.get("__name__", __name__)
    return type(f"Conformance of {adapter.name}", (), body)


def described(
    gather: Adapter | Callable[..., Any],
    *,
    gives: str | Callable[[int, Sequence[Any]], Any] = "list",
    takes: str | Mapping[str, Payload] = "objects",
    promises: Collection[str] | None = None,
    **more: Any,
) -> Adapter:
    """The adapter that `conformance` makes of what it is told."""
    if isinstance(gather, Adapter):
        said = [*more, *(["gives"] if gives != "list" else []), *(["takes"] if takes != "objects" else [])]
        if said:
            raise UsageError(f"{said[0]}= is said beside an Adapter, which says that itself; use dataclasses.replace")
        return gather if promises is None else replace(gather, promises=checked_promises(promises))
    if isinstance(gives, str) and gives not in GIVES:
        raise UsageError(f"gives={gives!r} is not known; choose from {', '.join(GIVES)}, or give a function")
    if isinstance(takes, str) and takes not in SAMPLES:
        raise UsageError(f"takes={takes!r} is not known; choose from {', '.join(SAMPLES)}")
    if not callable(gather):
        raise UsageError(f"{gather!r} is no gather; give a function of a payload, or an Adapter")
    name = more.pop("name", getattr(gather, "__name__", type(gather).__name__))
    receives = GIVES[gives] if isinstance(gives, str) else gives
    promised = checked_promises(tuple(Promise) if promises is None else promises)
    if isinstance(gives, str):
        more.setdefault("near", NEAR.get(gives, 0.0))
        more.setdefault("types", not (takes in _OF_NUMBERS and gives in REDUCED))
    adapter = Adapter(name, _called(gather), receives, takes=takes, promises=promised, **more)
    refuse_what_cannot_be_asked(adapter, gives)
    return adapter


def _called(gather: Callable[..., Any]) -> Callable[[Any, Setting], Any]:
    """`gather` as one of two arguments, whether it wants the second or not."""
    if takes_all(gather, 2):
        return gather

    def call(payload: Any, setting: Setting) -> Any:
        return gather(payload)

    return call


def _test_of(promise: Promise, asking: Asking, torch: Torch, *, promised: bool) -> Callable[..., None]:
    def test(self: object, question: Question) -> None:
        import pytest  # who has a class of tests has it; who drills from the command line may not

        if asking.has_enough(question.promise):
            wrong = asking.wrong_about(question.promise)
            pytest.skip(f"{wrong} answers were wrong before; to be asked all the same, select it with -k")
        complaint = asking.ask(question)
        if complaint and not promised:
            pytest.xfail(f"{NOT_PROMISED}: {complaint.splitlines()[0]}")
        if complaint:
            asked = f"not {question.promise}: {question.name}, {question.size} ranks"
            pytest.fail(f"{asked}\n{complaint}\n{torch.ask(question)}", pytrace=False)

    test.about = promise  # type: ignore[attr-defined]
    return test
