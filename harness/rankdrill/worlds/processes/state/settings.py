"""What can be put back: each setting of a process, how it is read and how it is set."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes an enum of each answer, which costs more than asking
import faulthandler
import gc
import locale
import logging
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch
import torch.multiprocessing as torch_multiprocessing

from rankdrill.boundary import torch_seam
from rankdrill.worlds.processes.environment import read_environment
from rankdrill.worlds.processes.last_words import LastWords
from rankdrill.worlds.processes.state.libraries import accelerate_back, ignite_back, read_accelerate, read_ignite

__all__ = ["SETTINGS", "Setting"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of this process. `put_back(was, now)` is called only where the two differ."""

    name: str
    read: Callable[[], Any]
    put_back: Callable[[Any, Any], object]


def _set(setter: Callable[[Any], object]) -> Callable[[Any, Any], object]:
    return lambda was, now: setter(was)


def _spread(setter: Callable[..., object]) -> Callable[[Any, Any], object]:
    return lambda was, now: setter(*was)


def _environment_back(was: dict[bytes, bytes], now: dict[bytes, bytes]) -> None:
    for name in now.keys() - was.keys():
        os.environb.pop(name, None)
    for name, value in was.items():
        if now.get(name) != value:
            os.environb[name] = value


def _read_umask() -> int:
    # There is no way to ask for it but to set it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


_SIGNALS = tuple(sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))


def _read_handlers() -> tuple[Any, ...]:
    return tuple(map(_signal.getsignal, _SIGNALS))


def _handlers_back(was: tuple[Any, ...], now: tuple[Any, ...]) -> None:
    for number, before, after in zip(_SIGNALS, was, now, strict=True):
        if before != after and before is not None:  # None: installed by C code, which Python cannot do again
            signal.signal(number, before)


def _last_words() -> LastWords | None:
    """What stands in for Python's fault handler, which itself does not say where it writes."""
    stand_in = getattr(faulthandler.enable, "__self__", None)
    return stand_in if isinstance(stand_in, LastWords) else None


def _read_fault_handler() -> Any:
    words = _last_words()
    return words.target if words is not None else None


def _fault_handler_back(was: Any, now: Any) -> None:
    words = _last_words()
    assert words is not None
    words.put_back(was)


_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def _read_timers() -> tuple[bool, ...]:
    return tuple(signal.getitimer(timer)[0] > 0 for timer in _TIMERS)


def _timers_back(was: tuple[bool, ...], now: tuple[bool, ...]) -> None:
    for timer, before, after in zip(_TIMERS, was, now, strict=True):
        if after and not before:
            signal.setitimer(timer, 0)


def _read_logging() -> tuple[int, int, tuple[logging.Handler, ...]]:
    root = logging.getLogger()
    # pytest's own handlers come and go with the phases of a test.
    handlers = tuple(one for one in root.handlers if not type(one).__module__.startswith("_pytest."))
    return root.level, root.manager.disable, handlers


def _logging_back(was: tuple[int, int, tuple[Any, ...]], now: tuple[int, int, tuple[Any, ...]]) -> None:
    root = logging.getLogger()
    root.setLevel(was[0])
    root.manager.disable = was[1]
    for handler in now[2]:
        if handler not in was[2]:
            root.removeHandler(handler)
    for handler in was[2]:
        if handler not in now[2]:
            root.addHandler(handler)


def _read_log_classes() -> tuple[Any, type[logging.Logger]]:
    return logging.getLogRecordFactory(), logging.getLoggerClass()


def _log_classes_back(was: tuple[Any, type[logging.Logger]], now: object) -> None:
    logging.setLogRecordFactory(was[0])
    logging.setLoggerClass(was[1])


_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)


def _read_limits() -> tuple[tuple[int, int], ...]:
    return tuple(map(resource.getrlimit, _LIMITS))


def _limits_back(was: tuple[tuple[int, int], ...], now: tuple[tuple[int, int], ...]) -> None:
    for limit, before, after in zip(_LIMITS, was, now, strict=True):
        if before != after:
            resource.setrlimit(limit, (before[0], after[1]))  # a hard limit only ever goes down


def _read_default_device() -> torch.device:
    try:
        return torch.empty(0).device  # torch.get_default_device() looks at all function modes: 20 times the time
    except Exception:  # a device that this machine does not have
        return torch.get_default_device()


def _default_device_back(was: torch.device, now: torch.device) -> None:
    torch.set_default_device(None if was == torch.device("cpu") else was)


_deterministic: Any = torch.utils.deterministic


def _read_deterministic() -> tuple[bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        _deterministic.fill_uninitialized_memory,
    )


def _deterministic_back(was: tuple[bool, bool, bool], now: tuple[bool, bool, bool]) -> None:
    torch.use_deterministic_algorithms(was[0], warn_only=was[1])
    _deterministic.fill_uninitialized_memory = was[2]


def _read_cudnn() -> tuple[bool, bool, bool]:
    cudnn: Any = torch.backends.cudnn
    return cudnn.enabled, cudnn.benchmark, cudnn.deterministic


def _cudnn_back(was: tuple[bool, bool, bool], now: tuple[bool, bool, bool]) -> None:
    cudnn: Any = torch.backends.cudnn
    cudnn.enabled, cudnn.benchmark, cudnn.deterministic = was


def _read_streams() -> tuple[Any, Any, Any]:
    return sys.stdin, sys.stdout, sys.stderr


def _streams_back(was: tuple[Any, Any, Any], now: tuple[Any, Any, Any]) -> None:
    sys.stdin, sys.stdout, sys.stderr = was


def _start_method_back(was: str | None, now: str | None) -> None:
    multiprocessing.set_start_method(was, force=True)


SETTINGS = (
    Setting("environment variables", read_environment, _environment_back),
    Setting("current directory", os.getcwd, _set(os.chdir)),
    Setting("sys.path", lambda: list(sys.path), lambda was, now: sys.path.__setitem__(slice(None), was)),
    Setting("umask", _read_umask, _set(os.umask)),
    Setting("recursion limit", sys.getrecursionlimit, _set(sys.setrecursionlimit)),
    Setting("signal handlers", _read_handlers, _handlers_back),
    Setting("fault handler", _read_fault_handler, _fault_handler_back),
    Setting("timers", _read_timers, _timers_back),
    Setting("root logger", _read_logging, _logging_back),
    Setting("classes of loggers and records", _read_log_classes, _log_classes_back),
    Setting("resource limits", _read_limits, _limits_back),
    Setting("standard streams", _read_streams, _streams_back),
    Setting("trace function", sys.gettrace, _set(sys.settrace)),
    Setting("profile function", sys.getprofile, _set(sys.setprofile)),
    Setting("garbage collector", gc.isenabled, lambda was, now: gc.enable() if was else gc.disable()),
    Setting("garbage collector's thresholds", gc.get_threshold, _spread(gc.set_threshold)),
    Setting("locale", lambda: locale.setlocale(locale.LC_ALL), lambda was, now: locale.setlocale(locale.LC_ALL, was)),
    Setting("tempfile.tempdir", lambda: tempfile.tempdir, lambda was, now: setattr(tempfile, "tempdir", was)),
    Setting(
        "multiprocessing's start method", lambda: multiprocessing.get_start_method(allow_none=True), _start_method_back
    ),
    Setting("numpy's print options", numpy.get_printoptions, lambda was, now: numpy.set_printoptions(**was)),
    Setting("numpy's error handling", numpy.geterr, lambda was, now: numpy.seterr(**was)),
    Setting("default dtype", torch.get_default_dtype, _set(torch.set_default_dtype)),
    Setting("default device", _read_default_device, _default_device_back),
    Setting("grad mode", torch.is_grad_enabled, _set(torch.set_grad_enabled)),
    Setting("anomaly detection", torch.is_anomaly_enabled, _set(torch.autograd.set_detect_anomaly)),
    Setting("deterministic algorithms", _read_deterministic, _deterministic_back),
    Setting("number of threads", torch.get_num_threads, _set(torch.set_num_threads)),
    Setting("float32 matmul precision", torch.get_float32_matmul_precision, _set(torch.set_float32_matmul_precision)),
    Setting("cudnn's flags", _read_cudnn, _cudnn_back),
    Setting("torch's print options", torch_seam.print_options, _set(torch_seam.set_print_options)),
    Setting(
        "torch.multiprocessing's sharing strategy",
        torch_multiprocessing.get_sharing_strategy,
        _set(torch_multiprocessing.set_sharing_strategy),
    ),
    Setting("accelerate's state", read_accelerate, accelerate_back),
    Setting("ignite's model of the processes", read_ignite, ignite_back),
)
"""In the order in which they are read and put back."""
