"""Ledgers that are torn or lie: refused with the one documented error, or read as far as they are true."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from rankdrill.diagnosis import Position, unreceived_message, waits
from rankdrill.diagnosis.messages.unmatched import unmatched_message
from rankdrill.errors import LedgerError
from rankdrill.faults import Plan
from rankdrill.ledger import LedgerReader, LedgerView
from rankdrill.worlds.private import remove_segments
from rankdrill.worlds.processes.ledgers import Ledgers
from rankdrill.worlds.processes.watching.positions import Positions
from tests.fixtures import fixture
from tests.little_memory import little_memory

FOLDER = fixture("ledgers")
ROOM_BYTES = 64 << 20  # for reading a file of some kB; what wants gigabytes, or never ends, soon wants more


@dataclass(frozen=True)
class Read:
    """What there is to read: how many `whole` records, how many `torn` and `dropped`, and how the newest is told."""

    whole: int
    torn: int = 0
    dropped: int = 0
    newest: str = "collective.all_reduce #2 on 'default' (float32[4] sum) [waiting]"


SECOND = "collective.all_reduce #1 on 'default' (float32[4] sum) [ended]"

REFUSED = {
    "empty": r"empty.ledger is no ledger: 0 bytes, a header has 4096",
    "half-a-header": r"is no ledger: 2000 bytes, a header has 4096",
    "zeros": r"is no ledger: it begins with b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00', a ledger with b'RDLEDGER'",
    "ones": r"is no ledger: it begins with b'\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff', a ledger with b'RDLEDGER'",
    "wrong-magic": r"is no ledger: it begins with b'RDLOGGER', a ledger with b'RDLEDGER'",
    "future-version": r"has ledger version 7 with records of 288 bytes; this rankdrill reads",
    "former-version": r"has ledger version 2 with records of 272 bytes; this rankdrill reads version 6",
    "endless-sites": r"says that it has room for 4294967295 call sites; a ledger has room for at most 65536",
    "longer-records": r"has ledger version 6 with records of 512 bytes; this rankdrill reads",
    "no-room": r"says that it has room for 0 records; a ledger has room for 1 to 1048576",
    "endless-ring": r"says that it has room for 4294967295 records; a ledger has room for 1 to 1048576",
}

READ = {
    "torn-record": Read(2, torn=1, newest=SECOND),
    "cut-in-a-record": Read(2, torn=1, newest=SECOND),
    "slots-swapped": Read(1, torn=2),
    "total-of-ones": Read(0, torn=8, dropped=2**64 - 9, newest="None"),
    "total-behind": Read(1, newest="collective.all_reduce #0 on 'default' (float32[4] sum) [ended]"),
    "commit-wraps": Read(
        4, dropped=2**32 - 2, newest="collective.all_reduce #4294967297 on 'default' (float32[4] sum) [ended]"
    ),
    "last-index": Read(
        4, dropped=2**64 - 5, newest="collective.all_reduce #9223372036854775807 on 'default' (float32[4] sum) [ended]"
    ),
    "times-run-backwards": Read(
        2, newest="collective.all_reduce #-9223372036854775808 on 'default' (float32[4] sum) [ended]"
    ),
    "members-of-128": Read(2, newest="collective.barrier #0 on 'odd' [waiting]"),
    "endless-members": Read(0, newest="None"),
    "parts-that-never-come": Read(1, newest="collective.all_reduce #0 on 'default' (float32[4] sum) [waiting]"),
    "peer-of-nobody": Read(3, newest="collective.recv on 'default' (float32[4] peer=\u0661) [waiting]"),
    "names-not-utf8": Read(4, newest="shm.create on '/dev/shm/rankdrill�nobody�' (O_CREAT) [ended]"),
    "rank-outside": Read(3),
    "unplanned-fault": Read(
        3, newest="collective.all_reduce #2 on 'default' (float32[4] sum) [waiting, struck by fault 65534]"
    ),
    "sites-cut-off": Read(3),
    "torn-site": Read(3),
    "site-of-nobody": Read(3),
    "unknown-kinds": Read(1, torn=3, newest="collective.all_reduce #0 on 'default' (float32[4] sum) [ended]"),
}

every_file = pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.ledger")))


def read(name: str) -> LedgerView:
    with little_memory(ROOM_BYTES):
        reader = LedgerReader(FOLDER / f"{name}.ledger")
        view = reader.view()
        reader.close()
        assert len(view) <= view.torn + len(view) == len(view.raw)
    return view


def of_two_ranks(name: str, folder: Path) -> Ledgers:
    """As the controller of a world reads it whose two ranks have both left it."""
    for rank in range(2):
        shutil.copy(FOLDER / f"{name}.ledger", folder / f"rank-{rank}.ledger")
    return Ledgers(folder)


def positions(name: str, folder: Path, plan: Plan | None = None) -> list[Position]:
    ledgers = of_two_ranks(name, folder)
    try:
        with little_memory(ROOM_BYTES):
            return Positions(ledgers, plan, 2).now({0, 1})
    finally:
        ledgers.close()


def test_every_file_is_spoken_of() -> None:
    assert {path.stem for path in FOLDER.glob("*.ledger")} == REFUSED.keys() | READ.keys()


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_ledger_is_refused_and_told_why(name: str) -> None:
    with pytest.raises(LedgerError, match=REFUSED[name]):
        read(name)


@pytest.mark.parametrize("name", READ)
def test_what_is_true_in_it_is_read_and_the_rest_counted(name: str) -> None:
    view = read(name)
    assert Read(len(view), view.torn, view.dropped, str(view.last)) == READ[name]


@pytest.mark.parametrize("name", ["sites-cut-off", "torn-site", "site-of-nobody"])
def test_a_call_site_is_told_only_where_it_is_whole(name: str) -> None:
    known = ", at train.py:12 in step"
    told = {"sites-cut-off": ["", "", ""], "torn-site": [known, "", ""], "site-of-nobody": [known, "", known]}
    assert [record.step.where for record in read(name)] == told[name]


def test_a_rank_outside_of_its_world_is_told_as_it_was_written() -> None:
    reader = LedgerReader(FOLDER / "rank-outside.ledger")
    assert (reader.rank, reader.world_size, reader.total) == (200, 4, 3)
    reader.close()


@every_file
def test_a_controller_goes_on(name: str, tmp_path: Path) -> None:
    there = positions(name, tmp_path)
    assert [position.ended for position in there] == [False, False]
    # Whoever waits is known from whole records alone.
    assert set(waits(there)) == ({0, 1} if name in READ and "[waiting" in READ[name].newest else set())


@every_file
def test_messages_in_it_accuse_nobody(name: str, tmp_path: Path) -> None:
    there = positions(name, tmp_path)
    views = {rank: read(name) if name in READ else LedgerView() for rank in range(2)}
    with little_memory(ROOM_BYTES):
        for finding in (unmatched_message(waits(there), views, set()), unreceived_message(views)):
            assert finding is None or not finding.culprits


@every_file
def test_a_controller_with_a_plan_goes_on(name: str, tmp_path: Path) -> None:
    assert len(positions(name, tmp_path, Plan.parse("rank 0: kill before collective.*"))) == 2


@every_file
def test_the_sweeper_removes_nothing_on_its_word(name: str, tmp_path: Path) -> None:
    of_two_ranks(name, tmp_path).close()
    with little_memory(ROOM_BYTES):
        assert remove_segments(tmp_path) == []


def test_the_members_of_128_ranks_are_known(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "members-of-128.ledger", tmp_path / "rank-127.ledger")
    ledgers = Ledgers(tmp_path)
    there = Positions(ledgers, None, 128).now({127})
    ledgers.close()
    assert there[127].groups == {"default": tuple(range(128)), "odd": tuple(range(1, 128, 2))}
    assert waits(there)[127].missing == tuple(range(1, 127, 2)), "the others have left no ledger at all"
