"""Gathers written by hand and wrong, each in one way; the drill must say which."""

from __future__ import annotations

import os
import random
import shutil
import signal
from typing import Any

import torch
import torch.distributed as dist

from rankdrill.conformance import Adapter, Setting
from rankdrill.errors import EncodeError, RankFailure

_opened: list[Any] = []
_calls = {"spent": 0}


def _gather(payload: Any, setting: Setting) -> list[Any]:
    received: list[Any] = [None] * setting.size
    dist.all_gather_object(received, payload)
    return received


def _right(payload: Any, setting: Setting) -> Any:
    return _gather(payload, setting)


def _raises_before_the_collective(payload: Any, setting: Setting) -> Any:
    if setting.rank == 1:
        raise ValueError("too large")
    return _gather(payload, setting)


def _raises_after_the_collective(payload: Any, setting: Setting) -> Any:
    received = _gather(payload, setting)
    if setting.rank == 1:
        raise ValueError("cannot load")
    return received


def _forgets_to_send(payload: Any, setting: Setting) -> Any:
    received = _gather(payload, setting)
    if setting.rank == 0:
        dist.recv(torch.zeros(1), src=1)
    return received


def _wrong_order(payload: Any, setting: Setting) -> Any:
    received = _gather(payload, setting)
    return received[::-1] if setting.rank == 1 else received


def _swallows_an_error(payload: Any, setting: Setting) -> Any:
    try:
        contributed = payload if setting.rank != 1 else (_ for _ in ()).throw(MemoryError())
    except MemoryError:
        contributed = None
    return _gather(contributed, setting)


def _leaves_a_file(payload: Any, setting: Setting) -> Any:
    with open(os.path.join(setting.directory, f"rank-{setting.rank}.pkl"), "w") as file:
        file.write("x")
    return _gather(payload, setting)


def _leaves_a_file_open(payload: Any, setting: Setting) -> Any:
    path = os.path.join(setting.directory, f"rank-{setting.rank}.pkl")
    _opened.append(open(path, "w"))  # noqa: SIM115 (the leak under test)
    os.unlink(path)
    return _gather(payload, setting)


def _advances_the_generator(payload: Any, setting: Setting) -> Any:
    random.random()
    return _gather(payload, setting)


def _dies(payload: Any, setting: Setting) -> Any:
    if setting.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return _gather(payload, setting)


def _raises_everywhere(payload: Any, setting: Setting) -> Any:
    _gather(payload, setting)
    raise RuntimeError("something went wrong")


def _blames_without_cause(payload: Any, setting: Setting) -> Any:
    _gather(payload, setting)
    raise EncodeError("broken", (RankFailure(0, "no reason"),))


def _works_once(payload: Any, setting: Setting) -> Any:
    received = _gather(payload, setting)
    _calls["spent"] += 1
    if _calls["spent"] == 3:  # the drill's warm-up, its first call, its second
        raise EncodeError("broken", (RankFailure(0, "spent"),))
    return received


def _removes_the_directory(payload: Any, setting: Setting) -> Any:
    received = _gather(payload, setting)
    shutil.rmtree(setting.directory, ignore_errors=True)
    return received


def _cannot_dress(payload: Any) -> Any:
    raise ValueError("no such thing")


RIGHT = Adapter("right", _right)
REMOVES = Adapter("removes the directory", _removes_the_directory)
CANNOT_DRESS = Adapter("cannot dress", _right, dress=_cannot_dress)
RAISES_BEFORE = Adapter("raises before the collective", _raises_before_the_collective)
RAISES_AFTER = Adapter("raises after the collective", _raises_after_the_collective)
FORGETS_TO_SEND = Adapter("forgets to send", _forgets_to_send)
WRONG_ORDER = Adapter("wrong order", _wrong_order)
SWALLOWS = Adapter("swallows an error", _swallows_an_error)
LEAVES_A_FILE = Adapter("leaves a file", _leaves_a_file)
LEAVES_A_FILE_OPEN = Adapter("leaves a file open", _leaves_a_file_open)
ADVANCES = Adapter("advances the generator", _advances_the_generator)
DIES = Adapter("dies", _dies)
RAISES_EVERYWHERE = Adapter("raises everywhere", _raises_everywhere)
BLAMES = Adapter("blames without cause", _blames_without_cause)
WORKS_ONCE = Adapter("works once", _works_once)
