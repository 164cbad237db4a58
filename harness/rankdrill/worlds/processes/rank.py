"""The rank's side: from the fork to a process that is initialised and takes jobs."""

from __future__ import annotations

import gc
import os
import random
import socket
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from rankdrill.boundary import Boundary, Handles, Prepared
from rankdrill.boundary.callsites import raise_site
from rankdrill.boundary.orders.ahead import Ahead
from rankdrill.diagnosis import ContractWatch
from rankdrill.ledger import Board, LedgerWriter
from rankdrill.strictness import STRICT
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import dump
from rankdrill.worlds.processes.jobs import Jobs, raised
from rankdrill.worlds.processes.last_words import LastWords, last_words_of
from rankdrill.worlds.processes.messages import RankSpec, Up
from rankdrill.worlds.processes.rendezvous import Rendezvous, launch_variables
from rankdrill.worlds.processes.streams import redirect_output
from rankdrill.worlds.processes.watching.breaks import BOARD, write_finding
from rankdrill.worlds.processes.wire import send_frame

__all__ = ["rank_main"]


def rank_main(channel: int, spec_json: dict[str, Any], prepared: Prepared) -> None:
    """Life of a rank, from the fork to the end of its process. Never returns.

    `prepared` is what the template has put in place for it.
    """
    gc.enable()
    spec = RankSpec(**spec_json)
    sock = socket.socket(fileno=channel)
    directory = Path(spec.directory)
    redirect_output(directory, spec.rank)
    last_words = LastWords(last_words_of(directory, spec.rank), raise_site)
    last_words.install()
    _reseed()
    try:
        jobs, context = _initialise(spec, directory, sock, prepared, last_words)
    except BaseException as error:
        send_frame(sock, dump(raised(error)))
        os._exit(1)
    send_frame(sock, dump(Up(os.getpid())))
    try:
        jobs.serve(context)
    except (EOFError, ConnectionError):
        os._exit(0)  # the controller is done with this rank


def _reseed() -> None:
    # A fork inherits the template's generators; a fresh process would not.
    random.seed()
    # Left to itself it gathers its entropy by way of a hundred pages, which this process would have to copy.
    numpy.random.seed(int.from_bytes(os.urandom(4)))
    torch.default_generator.seed()


def _initialise(
    spec: RankSpec, directory: Path, sock: socket.socket, prepared: Prepared, last_words: LastWords
) -> tuple[Jobs, RankContext]:
    torch.set_num_threads(1)  # as torchrun does: ranks share the cores
    device = _device(spec)
    ledger = LedgerWriter(directory / f"rank-{spec.rank}.ledger", rank=spec.rank, world_size=spec.world_size)
    watch = handles = None
    if spec.contracts:
        board = Board(directory / BOARD, spec.rank)
        watch = ContractWatch(board, spec.rank, partial(write_finding, directory, spec.rank))
        handles = Handles(watch.touched)
    behind = ledger, watch, handles, last_words.announce, last_words.note_handled
    boundary = prepared.take(*behind, ignored=[directory])
    boundary.on_ended_thread = last_words.note_ended
    boundary.made.strict = spec.contracts == STRICT
    if watch is not None:
        watch.look_ahead = Ahead(boundary, str(directory), directory / f"rank-{spec.rank}.ledger")
    # torch's stubs leave FileStore out.
    store = dist.FileStore(  # type: ignore[attr-defined]
        str(directory / "rendezvous"), spec.world_size
    )
    rendezvous = Rendezvous(spec, store, boundary)
    if spec.init:
        rendezvous.make_group()
    rendezvous.install()
    variables = launch_variables(spec)
    if spec.mpi:
        variables |= _join_mpi(spec, boundary)
    jobs = Jobs(sock, rendezvous, variables)
    mine = PrefixStore("user", store)
    group = dist.group.WORLD
    context = RankContext(
        spec.rank, spec.world_size, device, directory, mine, boundary, group, jobs.pause, last_words.take
    )
    return jobs, context


def _join_mpi(spec: RankSpec, boundary: Boundary) -> dict[str, str]:
    from rankdrill.boundary.mpi import install_mpi
    from rankdrill.worlds.processes.mpi.on_rank import join, variables

    install_mpi(boundary, join(spec))
    return variables(spec.rank, spec.world_size)


def _device(spec: RankSpec) -> torch.device:
    if spec.device != "cuda":
        return torch.device(spec.device)
    device = torch.device("cuda", spec.seat.local_rank)
    torch.cuda.set_device(device)
    return device
