"""What a started process has from its parent, and one that was forked elsewhere must be given."""

from __future__ import annotations

import os
import resource
import signal
import sys
from dataclasses import dataclass
from importlib import invalidate_caches
from pathlib import Path

from rankdrill.worlds.processes.nursery.key import LIMITS, environment_to_start_in

__all__ = ["Inheritance"]

_PYTHONS_OWN = {signal.SIGPIPE, signal.SIGXFSZ}  # an interpreter ignores them whatever its parent did


@dataclass(frozen=True, slots=True)
class Inheritance:
    """Path, environment, file mode mask, limits, cores and signals of a controller; travels as JSON."""

    path: list[str]
    environ: dict[str, str]
    umask: int
    limits: dict[str, list[int]]
    cores: list[int]
    ignored: list[int]
    blocked: list[int]

    @classmethod
    def of_this_process(cls) -> Inheritance:
        """What a process started by this one would have."""
        return cls(
            path=list(sys.path),
            environ=environment_to_start_in(),
            umask=_umask(),
            limits={name: list(resource.getrlimit(number)) for name, number in LIMITS.items()},
            cores=sorted(os.sched_getaffinity(0)),
            ignored=sorted(each for each in signal.valid_signals() if signal.getsignal(each) is signal.SIG_IGN),
            blocked=sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        )

    def take(self) -> None:
        """Have this process, which has one thread, be as the controller's own; raises `OSError` where it may not."""
        os.umask(self.umask)
        self._take_limits()
        if sorted(os.sched_getaffinity(0)) != self.cores:
            os.sched_setaffinity(0, self.cores)
        self._take_signals()
        os.environ.clear()
        os.environ.update(self.environ)
        sys.path[:] = self.path
        invalidate_caches()  # directories that were not there are remembered as such

    def _take_limits(self) -> None:
        for name, (soft, hard) in self.limits.items():
            if resource.getrlimit(LIMITS[name]) != (soft, hard):
                resource.setrlimit(LIMITS[name], (soft, hard))

    def _take_signals(self) -> None:
        for signum in signal.valid_signals() - _PYTHONS_OWN - {signal.SIGKILL, signal.SIGSTOP}:
            if signum in self.ignored:
                signal.signal(signum, signal.SIG_IGN)
            elif signal.getsignal(signum) is not signal.SIG_DFL:
                signal.signal(signum, signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.blocked)


def _umask() -> int:
    """Read where that changes nothing: by `os.umask` another thread would make files for all to write."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("Umask:")).split()[1], 8)
