"""The crossing: what is a step, in which order interceptors act, what is written down."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankdrill.boundary import Boundary, Call, Proceed
from rankdrill.boundary.patch import Patch, apply
from rankdrill.ledger import LedgerReader, LedgerWriter, State
from rankdrill.step import Kind, Step

STEP = Step(Kind.FILE, "open", "/a")


@pytest.fixture
def boundary(tmp_path: Path) -> Iterator[Boundary]:
    with LedgerWriter(tmp_path / "ledger", rank=0, world_size=1) as writer:
        yield Boundary(writer)


def states(tmp_path: Path) -> list[tuple[str, str]]:
    reader = LedgerReader(tmp_path / "ledger")
    found = [(record.state.name, record.error) for record in reader.view()]
    reader.close()
    return found


def test_interceptors_act_from_the_outside_in(boundary: Boundary, tmp_path: Path) -> None:
    order: list[str] = []

    def interceptor(name: str) -> Any:
        def intercept(call: Call, proceed: Proceed) -> Any:
            order.append(f"{name} before")
            result = proceed(call.with_args(seen=(*call.args.get("seen", ()), name)))
            order.append(f"{name} after")
            return result

        return intercept

    with boundary.recording([interceptor("outer"), interceptor("inner")]):
        result = boundary.cross(STEP, {}, lambda call: call.args["seen"])
    assert result == ("outer", "inner")
    assert order == ["outer before", "inner before", "inner after", "outer after"]
    assert states(tmp_path) == [("ENDED", "")]


def test_a_call_is_never_changed(boundary: Boundary) -> None:
    call = Call(STEP, {"a": 1})
    assert call.with_args(a=2, b=3).args == {"a": 2, "b": 3}
    assert call.args == {"a": 1}


def test_an_error_is_written_down_and_raised(boundary: Boundary, tmp_path: Path) -> None:
    def fail(call: Call) -> None:
        raise KeyboardInterrupt

    with boundary.recording(), pytest.raises(KeyboardInterrupt):
        boundary.cross(STEP, {}, fail)
    assert states(tmp_path) == [("RAISED", "KeyboardInterrupt")]
    assert not boundary.open


def test_open_only_while_recording_and_not_inside_a_step(boundary: Boundary) -> None:
    assert not boundary.open
    with boundary.recording():
        assert boundary.open
        assert boundary.cross(STEP, {}, lambda call: boundary.open) is False
        assert boundary.open
        with boundary.closed(), boundary.closed():
            assert not boundary.open
        assert boundary.open
    assert not boundary.open


def test_closed_is_for_one_thread(boundary: Boundary) -> None:
    seen = []
    with boundary.recording(), boundary.closed():
        thread = threading.Thread(target=lambda: seen.append(boundary.open))
        thread.start()
        thread.join()
    assert seen == [True]


def test_recordings_nest(boundary: Boundary) -> None:
    def count(call: Call, proceed: Proceed) -> Any:
        return proceed(call) + 1

    with boundary.recording([count]):
        with boundary.recording():
            assert boundary.cross(STEP, {}, lambda call: 0) == 0
        assert boundary.cross(STEP, {}, lambda call: 0) == 1


def test_a_step_may_go_on_after_the_call(boundary: Boundary, tmp_path: Path) -> None:
    with boundary.recording():
        index, result = boundary.begin(STEP, {}, lambda call: call.record)
    assert result == index
    assert states(tmp_path) == [("BEGUN", "")]
    boundary.mark(index, State.ISSUED)
    assert states(tmp_path) == [("ISSUED", "")]


def test_without_a_ledger_nothing_is_written() -> None:
    boundary = Boundary()

    def strike(call: Call, proceed: Proceed) -> Any:
        boundary.struck(call, 0)
        return proceed(call)

    with boundary.recording([strike]):
        assert boundary.cross(STEP, {}, lambda call: 5) == 5


class Base:
    def method(self) -> str:
        return "base"


class Derived(Base):
    own = 1


def test_patches_are_undone_last_first_and_leave_no_trace() -> None:
    undo = apply(
        [
            Patch(Derived, "own", lambda original: original + 1),
            Patch(Derived, "own", lambda original: original * 10),
            Patch(Derived, "method", lambda original: lambda self: original(self) + " patched"),
        ]
    )
    assert Derived.own == 20
    assert Derived().method() == "base patched"
    undo()
    assert Derived.own == 1
    with pytest.raises(AttributeError):
        apply([Patch(Derived, "own", lambda original: 5), Patch(Derived, "absent", lambda original: 5)])
    assert Derived.own == 1
    assert "method" not in vars(Derived)
    assert Derived().method() == "base"
