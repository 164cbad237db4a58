"""What a rank looks for again and again, read from a ledger that was written in a known order."""

from __future__ import annotations

from pathlib import Path

from rankdrill.diagnosis.missing_files import Look, look_of
from rankdrill.ledger import LedgerReader, LedgerView, LedgerWriter, State
from rankdrill.step import Kind, Site, Step

HERE = Site("train.py", 7, "wait_for")
LOOK = Step(Kind.FILE, "stat", "/data/run/config.json", site=HERE)


def looked(path: Path, *states: State) -> LedgerView:
    with LedgerWriter(path, rank=0, world_size=2) as ledger:
        for state in states:
            ledger.mark(ledger.begin(LOOK), state)
    return LedgerReader(path).view()


def test_who_is_just_about_to_look_once_more_has_looked_before(tmp_path: Path) -> None:
    """A busy machine may keep it there for as long as the run is looked at."""
    found = look_of(0, looked(tmp_path / "ledger", *[State.RAISED] * 3, State.BEGUN), None)
    assert found == Look(0, "run/config.json", HERE)


def test_who_has_looked_less_often_may_not_mean_to_wait(tmp_path: Path) -> None:
    assert look_of(0, looked(tmp_path / "ledger", *[State.RAISED] * 2, State.BEGUN), None) is None


def test_who_has_found_it_looks_for_it_no_more(tmp_path: Path) -> None:
    assert look_of(0, looked(tmp_path / "ledger", *[State.RAISED] * 3, State.ENDED), None) is None
