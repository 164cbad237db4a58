"""Arming: which step is struck, in which order strikes nest, and that it is on record first."""

from __future__ import annotations

import os
import pickle
import threading
import time
from pathlib import Path

import pytest

from tests.faults.here import rank_here


def test_the_nth_step_is_struck_and_no_other(tmp_path: Path) -> None:
    with rank_here("rank 0: denied at file.mkdir #2") as here:
        os.mkdir(tmp_path / "one")
        with pytest.raises(PermissionError):
            os.mkdir(tmp_path / "two")
        os.mkdir(tmp_path / "two")
        assert [record.fault for record in here.view] == [None, 0, None]
        assert here.fired == (1,)


def test_every_step_is_struck(tmp_path: Path) -> None:
    with rank_here("rank 0: denied at file.mkdir every") as here:
        for _ in range(3):
            with pytest.raises(PermissionError):
                os.mkdir(tmp_path / "one")
        assert here.fired == (3,)


def test_only_matching_steps_count(tmp_path: Path) -> None:
    with rank_here('rank 0: denied at file.* on "b*" #2') as here:
        for name in ("a", "b1", "a2"):
            os.mkdir(tmp_path / name)
        with pytest.raises(PermissionError):
            os.mkdir(tmp_path / "b2")
        assert here.fired == (1,)


def test_a_rename_is_struck_by_the_name_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "m.part").write_bytes(b"1")
    with rank_here('rank 0: denied at file.rename on "*.pt"') as here:
        os.rename(tmp_path / "m.part", tmp_path / "m.other")
        with pytest.raises(PermissionError):
            os.rename(tmp_path / "m.other", tmp_path / "m.pt")
        assert here.fired == (1,)
    assert os.listdir(tmp_path) == ["m.other"]


def test_steps_that_a_strike_does_not_fit_do_not_count(tmp_path: Path) -> None:
    with rank_here("rank 0: missing at file.open #1") as here:
        (tmp_path / "a").write_bytes(b"made, so it cannot be missing")
        with pytest.raises(FileNotFoundError):
            (tmp_path / "a").read_bytes()
        assert here.fired == (1,)


def test_other_ranks_faults_do_not_strike(tmp_path: Path) -> None:
    with rank_here("rank 1: denied at file.mkdir\nrank 2: kill before *.*", rank=0) as here:
        os.mkdir(tmp_path / "a")
        assert here.fired == (0, 0)


def test_any_kind_of_step(tmp_path: Path) -> None:
    with rank_here("rank 0: oom at *.* #2") as here:
        pickle.dumps(1)
        with pytest.raises(MemoryError, match=r"file\.mkdir"):
            os.mkdir(tmp_path / "a")
        assert here.fired == (1,)


def test_faults_compose_the_first_outermost(tmp_path: Path) -> None:
    # The delay is inside: when the step is denied before it, nobody is late and the second fault did not strike.
    with rank_here("rank 0: denied at file.mkdir\nrank 0: delay(5) before file.mkdir") as here:
        with pytest.raises(PermissionError):
            os.mkdir(tmp_path / "a")
        assert here.fired == (1, 0)
    for first, second in (("torn", "missing"), ("missing", "torn")):
        with rank_here(f"rank 0: {first} after file.replace\nrank 0: {second} after file.replace") as here:
            (tmp_path / "a").write_bytes(b"0123")
            os.replace(tmp_path / "a", tmp_path / "b")
            assert here.fired == (1, 1)
        assert not list(tmp_path.iterdir())


def test_what_a_strike_does_is_no_step(tmp_path: Path) -> None:
    with rank_here("rank 0: collision before file.mkdir") as here:
        with pytest.raises(FileExistsError):
            os.mkdir(tmp_path / "a")
        assert here.steps == ["file.mkdir"]


def test_steps_of_several_threads_count_together(tmp_path: Path) -> None:
    denied = []

    def work(name: str) -> None:
        for index in range(50):
            try:
                os.mkdir(tmp_path / f"{name}{index}")
            except PermissionError:
                denied.append(name)

    with rank_here("rank 0: denied at file.mkdir #77") as here:
        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert here.fired == (1,)
    assert len(denied) == 1
    assert len(list(tmp_path.iterdir())) == 199


def test_a_step_that_is_meant_only_before_or_only_after_does_not_count_at_the_other(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123")
    with rank_here("rank 0: torn before file.*") as here:
        os.rename(tmp_path / "a", tmp_path / "b")
        assert here.fired == (0,)
        assert (tmp_path / "b").read_bytes() == b"01"
        assert here.fired == (1,)


def test_a_step_that_leads_nowhere_has_one_name(tmp_path: Path) -> None:
    with rank_here('rank 0: denied at file.mkdir on "[A-Z]*"') as here:
        os.mkdir(tmp_path / "a")
        assert here.fired == (0,)
        with pytest.raises(PermissionError):
            os.mkdir(tmp_path / "A")


def test_a_strike_has_the_number_it_was_given(tmp_path: Path) -> None:
    with rank_here("rank 0: delay(0.2) before file.mkdir"):
        began = time.monotonic()
        os.mkdir(tmp_path / "a")
    assert time.monotonic() - began >= 0.2
