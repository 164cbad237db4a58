"""The process manager, spoken to as MPICH's ranks speak to it, and otherwise."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Iterator

import pytest

from rankdrill.worlds.processes.mpi import ProcessManager
from rankdrill.worlds.processes.mpi.lines import LINE_BYTES, VALUE_BYTES, BadLine, LineReader
from rankdrill.worlds.processes.mpi.pmi import MOST_KEYS

BOUND_S = 10.0


class Manager:
    """A manager whose selector runs when somebody has spoken."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.manager = ProcessManager(self.selector)
        self.seats: list[socket.socket] = []

    def seat(self, world: str, size: int) -> socket.socket:
        seat = self.manager.seat(world, size)
        seat.settimeout(BOUND_S)
        self.seats.append(seat)
        return seat

    def attend(self) -> None:
        while events := self.selector.select(0):
            for key, _ in events:
                key.data()

    def ask(self, seat: socket.socket, line: str) -> str:
        seat.sendall(f"{line}\n".encode())
        self.attend()
        return seat.recv(LINE_BYTES).decode().strip()


@pytest.fixture
def manager() -> Iterator[Manager]:
    made = Manager()
    yield made
    made.manager.close()
    for seat in made.seats:
        seat.close()
    made.selector.close()


def test_what_one_rank_puts_another_gets(manager: Manager) -> None:
    one, other = manager.seat("w", 2), manager.seat("w", 2)
    assert manager.ask(one, "cmd=init pmi_version=1 pmi_subversion=1") == (
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
    )
    name = manager.ask(one, "cmd=get_my_kvsname").partition("kvsname=")[2]
    assert manager.ask(one, f"cmd=put kvsname={name} key=card value=tcp#1=2") == "cmd=put_result rc=0 msg=success"
    assert manager.ask(other, f"cmd=get kvsname={name} key=card") == ("cmd=get_result rc=0 msg=success value=tcp#1=2")
    assert manager.ask(other, f"cmd=get kvsname={name} key=other").startswith("cmd=get_result rc=-1 msg=key_not_found")
    assert "value=(vector,(0,1,2))" in manager.ask(one, f"cmd=get kvsname={name} key=PMI_process_mapping")


def test_nobody_passes_the_barrier_before_all_have_come(manager: Manager) -> None:
    seats = [manager.seat("w", 3) for _ in range(3)]
    for seat in seats[:2]:
        seat.sendall(b"cmd=barrier_in\n")
    manager.attend()
    seats[0].setblocking(False)
    with pytest.raises(BlockingIOError):
        seats[0].recv(64)
    assert manager.ask(seats[2], "cmd=barrier_in") == "cmd=barrier_out rc=0"
    assert [seat.recv(64) for seat in seats[:2]] == [b"cmd=barrier_out rc=0\n"] * 2


def test_worlds_do_not_see_each_other(manager: Manager) -> None:
    one, other = manager.seat("one", 1), manager.seat("other", 1)
    manager.ask(one, "cmd=put kvsname=x key=card value=1")
    assert "rc=-1" in manager.ask(other, "cmd=get kvsname=x key=card")
    names = {manager.ask(seat, "cmd=get_my_kvsname") for seat in (one, other)}
    assert len(names) == 2


def test_more_than_its_bounds_it_does_not_keep(manager: Manager) -> None:
    seat = manager.seat("w", 1)
    assert "rc=-1" in manager.ask(seat, f"cmd=put kvsname=x key=long value={'v' * (VALUE_BYTES + 1)}")
    answers = [manager.ask(seat, f"cmd=put kvsname=x key=k{number} value=1") for number in range(MOST_KEYS + 2)]
    assert "rc=0" in answers[0]
    assert "rc=-1" in answers[-1]


def test_more_processes_are_refused(manager: Manager) -> None:
    seat = manager.seat("w", 1)
    assert manager.ask(seat, "mcmd=spawn\nnprocs=2\nexecname=x\nendcmd").startswith("cmd=spawn_result rc=-1")
    assert manager.ask(seat, "cmd=finalize") == "cmd=finalize_ack rc=0"


@pytest.mark.parametrize("said", [b"cmd=unheard_of\n", b"\xff\xfe\n", b"x" * (LINE_BYTES + 1)])
def test_who_speaks_otherwise_is_hung_up_on(manager: Manager, said: bytes) -> None:
    seat, other = manager.seat("w", 2), manager.seat("w", 2)
    seat.sendall(said)
    manager.attend()
    assert seat.recv(64) == b""
    assert manager.ask(other, "cmd=get_appnum") == "cmd=appnum rc=0 appnum=0"


def test_a_job_is_forgotten_with_its_last_rank(manager: Manager) -> None:
    first = manager.seat("w", 1)
    manager.ask(first, "cmd=put kvsname=x key=card value=1")
    first.close()
    manager.attend()
    assert "rc=-1" in manager.ask(manager.seat("w", 1), "cmd=get kvsname=x key=card")


@pytest.mark.parametrize("cut", range(1, 30))
def test_lines_come_in_any_pieces(cut: int) -> None:
    raw = b"cmd=put kvsname=k key=a value=b=c\ncmd=barrier_in\n"
    reader = LineReader()
    pieces = [raw[at : at + cut] for at in range(0, len(raw), cut)]
    lines = [line for piece in pieces for line in reader.feed(piece)]
    assert lines == [{"cmd": "put", "kvsname": "k", "key": "a", "value": "b=c"}, {"cmd": "barrier_in"}]


def test_a_line_without_end_has_a_bound() -> None:
    reader = LineReader()
    feed: Callable[[bytes], object] = reader.feed
    feed(b"x" * LINE_BYTES)
    with pytest.raises(BadLine):
        feed(b"x")
