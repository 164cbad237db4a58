"""The rank's side: initialise the group once, then run the bodies the controller sends."""

from __future__ import annotations

import faulthandler
import gc
import io
import os
import pickle
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

import numpy
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from rankdrill.boundary import Boundary, install
from rankdrill.boundary.collectives import DrilledGroup
from rankdrill.errors import UsageError
from rankdrill.ledger import LedgerWriter
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job, Place, dump, load
from rankdrill.worlds.processes.messages import Raised, RankSpec, Report, Returned, Up
from rankdrill.worlds.processes.wire import recv_frame, send_frame

__all__ = ["rank_main"]


def rank_main(channel: int, spec_json: dict[str, Any]) -> None:
    """Life of a rank, from the fork to the end of its process. Never returns."""
    gc.enable()
    spec = RankSpec(**spec_json)
    sock = socket.socket(fileno=channel)
    directory = Path(spec.directory)
    _redirect_output(directory, spec.rank)
    _reseed()
    try:
        context = _initialise(spec, directory)
    except BaseException as error:
        send_frame(sock, dump(_raised(error)))
        os._exit(1)
    send_frame(sock, dump(Up(os.getpid())))
    try:
        while True:
            place, raw = load(recv_frame(sock))
            send_frame(sock, dump(_run(context, place, raw)))
    except (EOFError, ConnectionError):
        os._exit(0)  # the controller is done with this rank


def _redirect_output(directory: Path, rank: int) -> None:
    # Files, not pipes: what was printed is there to read however the rank ends.
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for fd, name in ((1, "out"), (2, "err")):
        file = os.open(directory / f"rank-{rank}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, fd)
        os.close(file)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 (lives as long as the process)
    sys.stdout, sys.stderr = _unbuffered(1), _unbuffered(2)
    stacks = open(directory / f"rank-{rank}.stacks", "a")  # noqa: SIM115 (faulthandler keeps writing to it)
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)


def _unbuffered(fd: int) -> TextIO:
    raw = open(fd, "wb", buffering=0, closefd=False)  # noqa: SIM115 (lives as long as the process)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


def _reseed() -> None:
    # A fork inherits the template's generators; a fresh process would not.
    random.seed()
    numpy.random.seed()


def _initialise(spec: RankSpec, directory: Path) -> RankContext:
    torch.set_num_threads(1)  # as torchrun does: ranks share the cores
    device = _device(spec)
    ledger = LedgerWriter(directory / f"rank-{spec.rank}.ledger", rank=spec.rank, world_size=spec.world_size)
    boundary = Boundary(ledger)
    install(boundary, ignored=[directory])
    # torch's stubs leave FileStore out.
    store = dist.FileStore(  # type: ignore[attr-defined]
        str(directory / "rendezvous"), spec.world_size
    )
    dist.init_process_group(
        spec.backend,
        store=PrefixStore("default", store),
        rank=spec.rank,
        world_size=spec.world_size,
        timeout=timedelta(seconds=spec.group_timeout),
    )
    return RankContext(
        spec.rank, spec.world_size, device, directory, PrefixStore("user", store), boundary, dist.group.WORLD
    )


def _device(spec: RankSpec) -> torch.device:
    if spec.device != "cuda":
        return torch.device(spec.device)
    device = torch.device("cuda", spec.rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def _run(context: RankContext, place: Place, raw: bytes) -> Report:
    with _taken_over(context, place):
        try:
            job: Job = load(raw)
            result: Returned | Raised = Returned(_dump_value(context, _call(context, job)))
        except BaseException as error:
            result = _raised(error)
        _flush()
    return Report(result, _collectives(context), time.monotonic_ns())


def _call(context: RankContext, job: Job) -> Any:
    interceptors = []
    if job.plan is not None:
        from rankdrill.faults import arm

        interceptors = arm(job.plan, context.index, context.boundary)
    assert context.boundary.ledger is not None
    context.boundary.ledger.forget_strikes()
    given = (context, *job.args) if job.with_context else job.args
    with context.boundary.recording(interceptors):
        return job.body(*given, **job.kwargs)


def _dump_value(context: RankContext, value: Any) -> bytes:
    try:
        return dump(value)
    except Exception as error:
        kind = type(value).__qualname__
        raise UsageError(
            f"rank {context.index} returned a {kind} that cannot be pickled ({error}); return plain data instead"
        ) from error


def _raised(error: BaseException) -> Raised:
    text = "".join(traceback.format_exception(_without_own_frames(error)))
    try:
        message = str(error)
    except Exception as broken:
        message = f"<its message raises {type(broken).__name__}>"
    try:
        raw = pickle.dumps(error)
        pickle.loads(raw)
    except Exception:
        raw = b""
    return Raised(raw, text, type(error).__qualname__, message)


def _without_own_frames(error: BaseException) -> BaseException:
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return error.with_traceback(frames)


def _collectives(context: RankContext) -> int:
    group = dist.group.WORLD if dist.is_initialized() else None
    if group is not context.group or not isinstance(group, DrilledGroup):
        return -1  # the body destroyed the group; what it may have put in its place is not ours
    # `itertools.count` shows its next value only in its pickled form.
    return int(group.sequence.__reduce__()[1][0])


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the body's doing: closed, or replaced by something else
            stream.flush()


@contextmanager
def _taken_over(context: RankContext, place: Place) -> Iterator[None]:
    """Run as if started by the controller where it is now; leave the rank as it was for the next body."""
    sys.path[:] = place.sys_path
    environ = place.environ | {
        "RANK": str(context.index),
        "LOCAL_RANK": str(context.index),
        "WORLD_SIZE": str(context.world_size),
        "LOCAL_WORLD_SIZE": str(context.world_size),
    }
    if dict(os.environ) != environ:
        os.environ.clear()
        os.environ.update(environ)
    os.chdir(place.cwd)
    for name, fd in (("stdout", 1), ("stderr", 2)):
        if getattr(getattr(sys, name), "closed", False):  # by an earlier body
            setattr(sys, name, _unbuffered(fd))
    dtype = torch.get_default_dtype()
    try:
        yield
    finally:
        if torch.get_default_dtype() != dtype:
            torch.set_default_dtype(dtype)
