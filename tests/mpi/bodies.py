"""What ranks of MPI do, right and wrong. Each finds ``COMM_WORLD`` by itself, as a program does."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

import numpy as np


def world() -> Any:
    from mpi4py import MPI

    return MPI.COMM_WORLD


def gathers() -> list[Any] | None:
    comm = world()
    received: list[Any] | None = comm.gather({"rank": comm.rank, "size": comm.size}, root=0)
    return received


def every_kind() -> tuple[Any, ...]:
    """Collectives, messages and communicators of all kinds, in one run."""
    from mpi4py import MPI

    comm = world()
    half, copy = comm.Split(comm.rank % 2, comm.rank), comm.Dup()
    ends = [0, comm.size - 1]
    few = comm.Create_group(comm.Get_group().Incl(ends)) if comm.rank in ends else None
    told = few.bcast(comm.rank) if few is not None else 0
    received = np.empty(comm.size)
    copy.Allgather(np.full(1, float(comm.rank)), received)
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    request = comm.irecv(source=before)
    comm.send("round", after)
    around = request.wait(), comm.sendrecv(comm.rank, after, 0, None, before)
    first = sorted(comm.recv() for _ in range(comm.size - 1)) if comm.rank == 0 else comm.send(comm.rank, 0)
    request = comm.Ibarrier()
    request.Wait()
    window = MPI.Win.Allocate_shared(64, 1, comm=comm)
    window.Free()
    half_of_it = half.allgather(comm.rank)
    half.Free()
    return half_of_it, told, received.tolist(), around, first, comm.allreduce(1, op=MPI.MAX)


def finalizes() -> bool:
    from mpi4py import MPI

    world().Barrier()
    MPI.Finalize()
    return bool(MPI.Is_finalized())


def receives_slowly() -> float:
    """The sender of much data waits longer than it takes to see that somebody waits for ever."""
    comm = world()
    data = np.full(1 << 20, 1.0)
    if comm.rank == 0:
        request = comm.Irecv(data, source=1)
        time.sleep(0.6)
        request.Wait()
    elif comm.rank == 1:
        comm.Send(data * 2, 0)
    comm.Barrier()
    return float(data[-1])


def comes_late() -> list[int]:
    comm = world()
    if comm.rank == 1:
        time.sleep(0.8)
    received: list[int] = comm.allgather(comm.rank)
    return received


def exchanges_in_one_call() -> list[float]:
    """By a send and receive that is over later; who then waits is sent to by such a call, too."""
    comm = world()
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    first, second = np.zeros(1), np.zeros(1)
    request = comm.Isendrecv(np.full(1, float(comm.rank)), after, 0, first, before)
    request.Wait()
    if comm.rank == 0:
        time.sleep(0.6)
        comm.Isend(np.full(1, 7.0), after, tag=3).Wait()
    elif comm.rank == 1:
        comm.Recv(second, source=before, tag=3)
    comm.Sendrecv_replace(first, after, 0, before, 0)
    return [*first.tolist(), *second.tolist()]


def sends_again_and_again() -> list[float]:
    """A send that is made once and started twice, for receives that wait."""
    comm = world()
    data = np.zeros(1)
    taken: list[float] = []
    if comm.rank == 0:
        request = comm.Send_init(data, 1)
        for number in (1, 2):
            time.sleep(0.4)
            data[0] = number
            request.Start()
            request.Wait()
    elif comm.rank == 1:
        for _ in range(2):
            comm.Recv(data, source=0)
            taken.append(float(data[0]))
    comm.Barrier()
    return taken


def is_killed() -> None:
    comm = world()
    comm.Barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.allgather(comm.rank)


def leaves_one_out() -> None:
    comm = world()
    comm.Barrier()
    if comm.rank != 1:
        comm.allgather(comm.rank)


def raises_before() -> None:
    comm = world()
    if comm.rank == 1:
        raise ValueError("nothing to give")
    comm.allgather(comm.rank)


def cannot_pickle() -> None:
    comm = world()
    comm.allgather(threading.Lock() if comm.rank == 1 else comm.rank)


def another_root() -> None:
    comm = world()
    comm.gather(comm.rank, root=2 if comm.rank == 2 else 0)
    comm.Barrier()


def another_operator() -> None:
    from mpi4py import MPI

    comm = world()
    comm.allreduce(comm.rank, op=MPI.MAX if comm.rank == 2 else MPI.SUM)


def another_call() -> None:
    comm = world()
    if comm.rank == 2:
        comm.bcast(comm.rank)
    else:
        comm.barrier()


def exits() -> None:
    comm = world()
    if comm.rank == 1:
        sys.exit(3)
    comm.Barrier()


def aborts() -> None:
    comm = world()
    if comm.rank == 1:
        comm.Abort(7)
    comm.Barrier()


def raises_in_a_half() -> None:
    comm = world()
    half = comm.Split(comm.rank % 2)
    if comm.rank == 2:
        raise KeyError("half")
    half.allgather(comm.rank)
    comm.Barrier()


def never_sends() -> None:
    comm = world()
    if comm.rank == 0:
        comm.recv(source=1, tag=4)


def nobody_sends() -> None:
    comm = world()
    if comm.rank == 0:
        comm.recv()


def wait_for_each_other() -> None:
    comm = world()
    if comm.rank < 2:
        comm.recv(source=1 - comm.rank)
        comm.send(comm.rank, 1 - comm.rank)
