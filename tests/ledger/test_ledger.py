"""The ledger: what is written is read back, torn or whole, live or after SIGKILL."""

from __future__ import annotations

import itertools
import os
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdrill.errors import LedgerError
from rankdrill.ledger import CAPACITY, MAX_FAULTS, LedgerReader, LedgerView, LedgerWriter, State
from rankdrill.ledger.format import HEADER_BYTES, MOST_RECORDS, OP_BYTES, RECORD_BYTES
from rankdrill.step import NO_SEQUENCE, Contract, Kind, Site, Step
from tests.ledger.lying import SLOTS, lying

PATIENCE_S = 30.0
OPEN = Step(Kind.FILE, "open", "/a/b")


def write(path: Path, count: int, capacity: int = 8) -> None:
    with LedgerWriter(path, rank=1, world_size=4, capacity=capacity) as writer:
        for index in range(count):
            writer.mark(writer.begin(Step(Kind.FILE, f"op{index}")), State.ENDED)


def read(path: Path, start: int = 0) -> LedgerView:
    reader = LedgerReader(path)
    view = reader.view(start)
    reader.close()
    return view


def ops(view: LedgerView) -> list[str]:
    return [record.step.op for record in view]


def test_a_record_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    step = Step(Kind.COLLECTIVE, "all_reduce", "default", "float32[4] sum", 16, sequence=7)
    with LedgerWriter(path, rank=3, world_size=8) as writer:
        index = writer.begin(step)
        writer.wait(index, 1.5)
        reader = LedgerReader(path)
        (record,) = reader.view()
        assert record.step == step
        assert record.state is State.WAITING
        assert record.patience_ms == 1500
        assert record.thread == threading.get_native_id()
        assert record.fault is None
        assert record.end_ns == 0
        assert reader.view().last_open == record
        writer.mark(index, State.ENDED)
        (record,) = reader.view()
        assert record.end_ns >= record.begin_ns > 0
        assert reader.view().last_open is None
        assert (reader.rank, reader.world_size, reader.pid, reader.capacity) == (3, 8, os.getpid(), CAPACITY)
        reader.close()


def test_call_sites_and_digests_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    sites = [Site(f"/a/{'é' * n}/train.py", n, f"step{n}", "all_gather_object") for n in (3, 4, 3)]
    with LedgerWriter(path, rank=0, world_size=2, capacity=2) as writer:
        reader = LedgerReader(path)
        for number, site in enumerate([*sites, None]):
            writer.begin(Step(Kind.COLLECTIVE, "all_gather", site=site, digest=2**64 - 1 - number))
            assert reader.view().last is not None
            newest = reader.view().records[-1].step
            assert (newest.site, newest.digest) == (site, 2**64 - 1 - number)
            assert newest.contract is None, "only its own rank has it"
        reader.close()
    # Records that the ring has lost took no call site with them.
    assert [record.step.site for record in read(path)] == [sites[2], None]


def test_two_calls_of_one_line_with_the_same_arguments_are_two(tmp_path: Path) -> None:
    """A batch sends and receives in one line of the user's, and both ends of a message have one contract."""
    contract, site = Contract("message"), Site("train.py", 3, "step")
    with LedgerWriter(tmp_path / "ledger", rank=0, world_size=2) as writer:
        for op in ("recv", "send", "recv"):
            writer.begin(Step(Kind.COLLECTIVE, op, "default", "float32[4]", site=site, contract=contract))
    assert ops(read(tmp_path / "ledger")) == ["recv", "send", "recv"]


def test_a_full_table_of_call_sites_leaves_the_rest_unknown(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    sites = [Site("train.py", line, "step") for line in range(5)]
    with LedgerWriter(path, rank=0, world_size=2, sites=3) as writer:
        for site in [*sites, sites[0]]:
            writer.begin(Step(Kind.COLLECTIVE, "barrier", site=site))
    assert [record.step.site for record in read(path)] == [*sites[:3], None, None, sites[0]]


LIBRARY = "/venv/lib/python3.12/site-packages/trainer/loop.py"


def within(user: Site, *lines: int) -> Site:
    """A call at `user` that went by these lines of a library, the innermost last."""
    whole = replace(user, via="")
    for line in lines:
        whole = Site(LIBRARY, line, f"called_{line}", user.via if line == lines[-1] else "", whole)
    return replace(user, whole=whole)


def test_lines_of_libraries_are_kept_beside_those_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    fit = Site("train.py", 7, "main", "barrier", Site("train.py", 20, "<module>"))
    sites = [within(fit, 1, 2), within(replace(fit, via="all_reduce"), 1, 3), fit]
    with LedgerWriter(path, rank=0, world_size=2) as writer:
        for site in sites:
            writer.begin(Step(Kind.COLLECTIVE, "barrier", site=site))
    view = read(path)
    assert [record.step.site for record in view] == sites, "the user's alone"
    assert [record.step.site for record in view.through_libraries] == [sites[0].whole, sites[1].whole, fit]
    assert view.has_libraries


def test_where_no_call_went_by_a_library_none_is_told(tmp_path: Path) -> None:
    with LedgerWriter(tmp_path / "ledger", rank=0, world_size=2) as writer:
        writer.begin(Step(Kind.COLLECTIVE, "barrier", site=Site("train.py", 7, "main")))
    assert not read(tmp_path / "ledger").has_libraries


def test_lines_of_libraries_leave_room_for_those_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    sites = [within(Site("train.py", line, "main"), 1, 2) for line in range(1, 5)]
    with LedgerWriter(path, rank=0, world_size=2, sites=8) as writer:
        for site in sites:
            writer.begin(Step(Kind.COLLECTIVE, "barrier", site=site))
    view = read(path)
    assert [record.step.site for record in view] == sites
    whole = [record.step.site for record in view.through_libraries]
    assert whole == [sites[0].whole, sites[1].whole, sites[2], sites[3]]


def test_callers_leave_room_for_the_lines_themselves(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    sites = [Site("train.py", line, "helper", caller=Site("train.py", 100 + line, "main")) for line in range(6)]
    with LedgerWriter(path, rank=0, world_size=2, sites=8) as writer:
        for site in sites:
            writer.begin(Step(Kind.COLLECTIVE, "barrier", site=site))
    found = [record.step.site for record in read(path)]
    assert found[:3] == sites[:3]
    assert found[-1] is None or found[-1].caller is None
    assert replace(sites[3], caller=None) in found


def test_a_call_site_that_is_too_long_keeps_the_files_end(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with LedgerWriter(path, rank=0, world_size=2) as writer:
        writer.begin(Step(Kind.COLLECTIVE, "barrier", site=Site("/long" * 90 + "/train.py", 2**31, "f" * 90, "v" * 90)))
    site = read(path).records[0].step.site
    assert site is not None
    assert (site.file[0], site.file[-9:], site.line) == ("…", "/train.py", 2**31)
    assert site.function.startswith("fff")
    assert site.via.endswith("…")


@given(
    st.sampled_from(Kind),
    st.text(max_size=OP_BYTES).filter(lambda text: "\0" not in text and len(text.encode(errors="ignore")) <= OP_BYTES),
    st.integers(0, 2**63 - 1),
    st.integers(NO_SEQUENCE, 2**62),
)
def test_any_step_is_read_back(kind: Kind, op: str, nbytes: int, sequence: int) -> None:
    step = Step(kind, op.encode(errors="ignore").decode(), "", "", nbytes, sequence)
    with TemporaryDirectory() as directory:
        path = Path(directory, "ledger")
        with LedgerWriter(path, rank=0, world_size=1, capacity=1) as writer:
            writer.begin(step)
        (record,) = read(path)
    assert record.step == step


@pytest.mark.parametrize("text", ["x" * 500, "é" * 300, "\ud800" * 200, "日本" * 100])
def test_long_names_are_cut_where_they_say_least(text: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with LedgerWriter(path, rank=0, world_size=1) as writer:
        writer.begin(Step(Kind.FILE, "open", f"/begins/{text}/ends", f"begins {text} ends"))
    (record,) = read(path)
    assert record.step.target.startswith("…")
    assert record.step.target.endswith("/ends")
    assert record.step.fingerprint.startswith("begins ")
    assert record.step.fingerprint.rstrip("�").endswith("…")


def test_the_ring_keeps_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    write(path, 20, capacity=8)
    view = read(path)
    assert ops(view) == [f"op{index}" for index in range(12, 20)]
    assert (view.first, view.dropped, view.torn) == (12, 12, 0)
    assert [record.index for record in view] == list(range(12, 20))
    later = read(path, start=15)
    assert (ops(later)[0], later.dropped) == ("op15", 0)


def test_a_step_that_outlived_a_lap_writes_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with LedgerWriter(path, rank=0, world_size=1, capacity=2) as writer:
        old = writer.begin(OPEN)
        for _ in range(2):
            writer.begin(OPEN)
        writer.fail(old, ValueError())
        writer.wait(old, 1.0)
        writer.strike(old, 0)
        assert [(r.state, r.patience_ms, r.fault) for r in read(path)] == [(State.BEGUN, 0, None)] * 2


def test_errors_and_strikes_are_on_record(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with LedgerWriter(path, rank=0, world_size=1) as writer:
        index = writer.begin(OPEN)
        writer.strike(index, MAX_FAULTS - 1)
        writer.strike(index, MAX_FAULTS - 1)
        writer.fail(index, FileNotFoundError("gone"))
        (record,) = read(path)
        assert (record.state, record.error, record.fault) == (State.RAISED, "FileNotFoundError", MAX_FAULTS - 1)
        assert "struck by fault 255" in str(record)
        reader = LedgerReader(path)
        assert reader.fired(MAX_FAULTS) == (0,) * (MAX_FAULTS - 1) + (2,)
        writer.forget_strikes()
        assert reader.fired(MAX_FAULTS) == (0,) * MAX_FAULTS
        reader.close()


@pytest.mark.parametrize("damage", [0, 8, 47, 130, 252])
def test_a_torn_record_is_never_believed(damage: int, tmp_path: Path) -> None:
    # As when the writer is killed half way: the fields behind `damage` are still those of the lap before.
    path = tmp_path / "ledger"
    write(path, 5, capacity=4)
    slot = HEADER_BYTES + 0 * RECORD_BYTES
    raw = bytearray(path.read_bytes())
    before = bytearray(RECORD_BYTES)
    raw[slot + damage : slot + RECORD_BYTES] = before[damage:]
    path.write_bytes(raw)
    view = read(path)
    assert ops(view) == ["op1", "op2", "op3"]
    assert view.torn == 1


def test_unknown_kinds_and_states_are_torn(tmp_path: Path) -> None:
    for offset in (46, 47):
        path = tmp_path / f"ledger{offset}"
        write(path, 1)
        raw = bytearray(path.read_bytes())
        raw[HEADER_BYTES + offset] = 99
        path.write_bytes(raw)
        assert (len(read(path)), read(path).torn) == (0, 1)


@pytest.mark.parametrize("kept", [HEADER_BYTES, HEADER_BYTES + 100, HEADER_BYTES + 3 * RECORD_BYTES + 1])
def test_a_truncated_file_is_evidence_as_far_as_it_goes(kept: int, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    write(path, 5, capacity=8)
    os.truncate(path, kept)
    view = read(path)
    whole = (kept - HEADER_BYTES) // RECORD_BYTES
    assert ops(view) == [f"op{index}" for index in range(whole)]
    assert view.torn == 5 - whole


def test_a_ring_that_was_cut_short_is_read_where_its_records_were_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    write(path, 11, capacity=8)  # a lap and three more: the ring's slots hold 8, 9, 10, 3, 4, 5, 6, 7
    os.truncate(path, HEADER_BYTES + 5 * RECORD_BYTES)
    view = read(path)
    assert ops(view) == ["op3", "op4", "op8", "op9", "op10"]
    assert (view.first, view.dropped, view.torn) == (3, 3, 3)


def test_a_ring_that_the_file_is_far_too_short_for_is_not_believed(tmp_path: Path) -> None:
    """To go through it would take seconds, of a file of some kB."""
    with pytest.raises(LedgerError, match=f"has room for {MOST_RECORDS} records, and is long enough for {SLOTS}"):
        LedgerReader(lying(tmp_path / "ledger", MOST_RECORDS))
    assert read(lying(tmp_path / "usual", CAPACITY)).torn == CAPACITY, "an ordinary one that was cut is still evidence"


def test_a_pipe_is_no_ledger_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ledger")
    with pytest.raises(LedgerError, match="is no ledger: 0 bytes"):
        LedgerReader(tmp_path / "ledger")


def test_what_is_no_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(b"short")
    with pytest.raises(LedgerError, match="is no ledger: 5 bytes"):
        LedgerReader(path)
    path.write_bytes(b"NOLEDGER" + bytes(HEADER_BYTES))
    with pytest.raises(LedgerError, match="begins with b'NOLEDGER'"):
        LedgerReader(path)
    for offset, what in ((8, "version"), (12, "record size")):
        path.unlink()
        write(path, 1)
        raw = bytearray(path.read_bytes())
        struct.pack_into("<I", raw, offset, 99)
        path.write_bytes(raw)
        with pytest.raises(LedgerError, match="this rankdrill reads version 6"):
            pytest.fail(f"{what} was not looked at: {LedgerReader(path)}")


def test_a_ledger_is_made_once(tmp_path: Path) -> None:
    write(tmp_path / "ledger", 1)
    with pytest.raises(FileExistsError):
        LedgerWriter(tmp_path / "ledger", rank=0, world_size=1)
    assert (tmp_path / "ledger").stat().st_mode & 0o777 == 0o600


def test_threads_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with LedgerWriter(path, rank=0, world_size=1) as writer:

        def work(name: str) -> None:
            for index in range(200):
                writer.mark(writer.begin(Step(Kind.FILE, name, nbytes=index)), State.ENDED)

        threads = [threading.Thread(target=work, args=(f"thread{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        view = read(path)
    assert (len(view), view.torn) == (800, 0)
    for number in range(4):
        mine = [record.step.nbytes for record in view if record.step.op == f"thread{number}"]
        assert mine == list(range(200))


def test_a_killed_writer_leaves_all_it_began(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    code = f"""
        from rankdrill.ledger import LedgerWriter, State
        from rankdrill.step import Kind, Step
        writer = LedgerWriter({str(path)!r}, rank=0, world_size=1, capacity=64)
        number = 0
        while True:
            index = writer.begin(Step(Kind.FILE, "write", "/a", nbytes=number))
            number += 1
            if number % 7:
                writer.mark(index, State.ENDED)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    try:
        _wait_for(path.exists)
        _wait_for(lambda: path.stat().st_size > HEADER_BYTES and _total(path) > 1000)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
        reader = LedgerReader(path)
        view = reader.view()
        assert reader.pid == process.pid
        # Killed between writing a record and counting it: the count may be one behind the ring, never ahead.
        assert len(view) + view.torn == 64
        assert view.torn <= 1
        numbers = [record.step.nbytes for record in view]
        assert all(later > earlier for earlier, later in itertools.pairwise(numbers))
        assert reader.total - 1 - numbers[-1] <= 1
        reader.close()
    finally:
        process.kill()
        process.wait()


def _total(path: Path) -> int:
    try:
        reader = LedgerReader(path)
    except LedgerError:  # not written yet
        return 0
    total = reader.total
    reader.close()
    return total


def _wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "the writer did not start"
        time.sleep(0.01)
