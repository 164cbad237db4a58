"""A script on a rank: run as `python` runs it, with what it leaves to the end of its process."""

from __future__ import annotations

import atexit
import os
import runpy
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rankdrill.worlds.plain import Plain

__all__ = ["Script", "run_script"]


@dataclass(frozen=True, slots=True)
class Script(Plain):
    """What to run: the file `name`, or if it is a `module` the one of that name, with `args`.

    With `backend` every default group that it makes is of that, whatever it asks for.
    """

    name: str
    args: tuple[str, ...] = ()
    module: bool = False
    backend: str | None = None


def run_script(script: Script) -> None:
    """Run `script` here as ``__main__``; raises what it raises, its exit too unless that says that all is well."""
    if script.backend is not None:
        _use_backend(script.backend)
    sys.argv = [script.name, *script.args]
    with _ending_as_a_process_does():
        try:
            if script.module:
                _come_first(os.getcwd())
                runpy.run_module(script.name, run_name="__main__", alter_sys=True)
            else:
                _come_first(os.path.dirname(os.path.abspath(script.name)))
                runpy.run_path(script.name, run_name="__main__")
        except SystemExit as left:
            if left.code not in (None, 0):
                raise


def _come_first(folder: str) -> None:
    """Put `folder` where Python puts that of a script, in place of the one that the controller was started from."""
    if sys.flags.safe_path:
        return
    sys.path[:1] = [folder]


@contextmanager
def _ending_as_a_process_does() -> Iterator[None]:
    """Wait for threads and call what was registered for the end, whatever comes: a rank's process ends without."""
    before = set(threading.enumerate())
    try:
        yield
    finally:
        for thread in threading.enumerate():
            if thread not in before and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()


def _use_backend(backend: str) -> None:
    import torch.distributed as dist  # not where this is imported: the controller of a run does without torch
    from torch.distributed import distributed_c10d

    made: Any = dist.init_process_group

    def init_process_group(_asked_for: Any = None, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        kwargs.pop("backend", None)
        if str(dist.Backend.NCCL) not in backend:
            kwargs.pop("device_id", None)  # which is for NCCL
        made(backend, *args, **kwargs)

    for module in (dist, distributed_c10d):
        setattr(module, made.__name__, init_process_group)
