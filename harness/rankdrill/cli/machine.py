"""What this machine has, and what each thing switches on: the findings of `rankdrill doctor`."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

__all__ = ["Finding", "Level", "look"]

MIN_PYTHON = (3, 11)
MIN_TORCH = (2, 6)
MIN_SHM = 64 << 20  # docker's default, which a few tensors fill
MIN_FILES = 1024  # a rank holds about 10 descriptors per group, its controller 4 per rank
_GIB = 1 << 30


class Level(StrEnum):
    """What a finding means for rankdrill."""

    OK = "ok"
    ABSENT = "absent"  # and nothing but what it switches on is missed
    POOR = "poor"  # works, with limits
    FATAL = "fatal"  # rankdrill cannot run here


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked for: what was found, and what it means in rankdrill."""

    name: str
    level: Level
    found: str
    means: str


def look() -> Iterator[Finding]:
    """Look at everything, one finding after another; never raises."""
    for name, check in _CHECKS.items():
        try:
            level, found, means = check()
        except Exception as error:  # a finding too: a doctor must not die of the disease
            level, found, means = Level.POOR, f"cannot tell: {type(error).__name__}: {error}", ""
        yield Finding(name, level, found, means)


_Found = tuple[Level, str, str]


def _python() -> _Found:
    level = Level.OK if sys.version_info >= MIN_PYTHON else Level.FATAL
    return level, f"{platform.python_version()} ({sys.executable})", f"{_dotted(MIN_PYTHON)} or newer is needed"


def _platform() -> _Found:
    level = Level.OK if sys.platform.startswith("linux") else Level.FATAL
    return level, f"{platform.system()} {platform.release()}", "worlds of processes need Linux"


def _torch() -> _Found:
    try:
        import torch
    except ImportError as error:
        return Level.FATAL, f"cannot be imported: {error}", "pip install torch"
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < MIN_TORCH:
        return Level.FATAL, torch.__version__, f"{_dotted(MIN_TORCH)} or newer is needed"
    return Level.OK, torch.__version__, f"{_dotted(MIN_TORCH)} or newer is supported"


def _backends() -> _Found:
    import torch.distributed as dist

    if not dist.is_available():
        return Level.FATAL, "torch was built without distributed", "install a torch build that has it"
    available = {
        "gloo": dist.is_gloo_available(),
        "nccl": dist.is_nccl_available(),
        "mpi": dist.is_mpi_available(),
        "ucc": dist.is_ucc_available(),
    }
    found = ", ".join(name for name, there in available.items() if there) or "none"
    level = Level.OK if available["gloo"] else Level.FATAL
    return level, found, 'gloo runs every drill; nccl adds backend="nccl"'


def _gpus() -> _Found:
    import torch

    count = torch.cuda.device_count()
    means = 'device="cuda", and backend="nccl"; ranks may share a GPU'
    if not count:
        return Level.ABSENT, "none", f"not needed; switches on {means}"
    names = ", ".join(dict.fromkeys(torch.cuda.get_device_name(index) for index in range(count)))
    return Level.OK, f"{count} ({names})", means


def _cores() -> _Found:
    usable = len(os.sched_getaffinity(0))
    quota = _cgroup("cpu.max").split()
    limit = f", cgroup allows {int(quota[0]) / int(quota[1]):.1f}" if len(quota) == 2 and quota[0] != "max" else ""
    level = Level.OK if usable >= 2 else Level.POOR
    return level, f"{usable} usable of {os.cpu_count()}{limit}", "ranks share them; more cores, faster drills"


def _memory() -> _Found:
    import psutil

    memory = psutil.virtual_memory()
    limit = _cgroup("memory.max")
    capped = f", cgroup allows {_size(int(limit))}" if limit.isdigit() else ""
    level = Level.OK if memory.available > _GIB else Level.POOR
    found = f"{_size(memory.available)} free of {_size(memory.total)}{capped}"
    return level, found, "a rank takes about 40 MB of its own"


def _shm() -> _Found:
    usage = shutil.disk_usage("/dev/shm")
    found, means = f"{_size(usage.free)} free of {_size(usage.total)}", "for get_configs_parallel, get_tensors_parallel"
    if usage.free < MIN_SHM:
        return Level.POOR, found, f"{means}: too small (docker: --shm-size=1g)"
    return Level.OK, found, means


def _temp() -> _Found:
    from rankdrill.errors import UsageError
    from rankdrill.worlds.home import home, objection_to, usual_home

    try:
        path = home()
    except UsageError as error:
        return Level.FATAL, str(error), "ledgers, rendezvous and what ranks print"
    free = shutil.disk_usage(path).free
    objection = "" if path == usual_home() else f"; {usual_home()} {objection_to(usual_home())}"
    level = Level.OK if free > MIN_SHM and not objection else Level.POOR
    return (
        level,
        f"{path}, {_size(free)} free{objection}",
        f"ledgers, rendezvous and what ranks print ({_kind_of(path)})",
    )


def _files() -> _Found:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    level = Level.OK if soft == resource.RLIM_INFINITY or soft >= MIN_FILES else Level.POOR
    return level, f"{_limit(soft)} (hard {_limit(hard)})", "ulimit -n; about 10 per process group and rank"


def _processes() -> _Found:
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    pids = _cgroup("pids.max")
    capped = f", cgroup allows {pids}" if pids.isdigit() else ""
    return (
        Level.OK,
        f"{_limit(soft)} (hard {_limit(hard)}){capped}",
        "ulimit -u; one process per rank, several threads each",
    )


def _locked() -> _Found:
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unit = [_limit(each) if each == resource.RLIM_INFINITY else _size(each) for each in (soft, hard)]
    return (
        Level.OK,
        f"{unit[0]} (hard {unit[1]})",
        "ulimit -l; pinned memory and InfiniBand want it unlimited, drills do not",
    )


def _cgroups() -> _Found:
    path = _cgroup_path()
    found = "version 2" if path else "no version 2"
    can_write = bool(path) and os.access(path or "", os.W_OK)
    means = "not needed; what limits cores, memory and processes above"
    return (Level.OK if path else Level.ABSENT), f"{found}, {'writable' if can_write else 'read-only'}", means


def _fuse() -> _Found:
    there = os.access("/dev/fuse", os.W_OK) and bool(shutil.which("fusermount3") or shutil.which("fusermount"))
    found = "/dev/fuse can be mounted" if there else "no usable /dev/fuse or fusermount"
    return (Level.OK if there else Level.ABSENT), found, "not needed; a way to break files under C++ code by hand"


def _strace() -> _Found:
    return _tool("strace", "system calls of C++ code can be failed by hand (-e inject=…)")


def _py_spy() -> _Found:
    return _tool("py-spy", "C++ frames of a stuck rank by hand (py-spy dump --native); Python stacks come without it")


def _nursery() -> _Found:
    from rankdrill.worlds.home import home
    from rankdrill.worlds.processes.nursery import KEEP_VARIABLE, Nurseries

    running = Nurseries(home()).status()
    if not running:
        return Level.ABSENT, "none", f"not needed; {KEEP_VARIABLE}=600 keeps one: later sessions start sooner"
    told = (f"pid {one['pid']} with {one['templates']} templates, stays {one['keep_s']:g} s idle" for one in running)
    return Level.OK, "; ".join(told), f"templates are forked from it ({KEEP_VARIABLE})"


def _lane() -> _Found:
    from rankdrill.native import lane

    level = Level.OK if lane() == "C" else Level.ABSENT
    return level, lane(), "in C, which takes a compiler to install, watching a collective costs a third"


def _early() -> _Found:
    import rankdrill.worlds.processes.preload  # noqa: F401 (what a template imports)
    from rankdrill.boundary import names_before

    left = [str(name) for name in names_before() if name.stdlib]
    return Level.OK, ", ".join(left) or "none", "the standard library's second names: calls by them are no steps"


def _trial() -> _Found:
    """Two ranks, for real."""
    import time

    from rankdrill.worlds import World

    began = time.monotonic()
    with World(2) as world:
        world.run(_meet, deadline=30).unwrap()
        first = time.monotonic() - began
        world.discard()
        again = time.monotonic()
        world.run(_meet, deadline=30).unwrap()
    return Level.OK, f"2 ranks met after {first:.1f} s, a fresh pair in {time.monotonic() - again:.2f} s", "it runs"


def _meet() -> None:
    import torch.distributed as dist

    dist.barrier()


def _try() -> _Found:
    try:
        return _trial()
    except Exception as error:  # whatever the reason, rankdrill cannot run here
        return Level.FATAL, f"2 ranks did not meet: {error}", "see the findings above"


_CHECKS: dict[str, Callable[[], _Found]] = {
    "Python": _python,
    "system": _platform,
    "torch": _torch,
    "backends": _backends,
    "GPUs": _gpus,
    "cores": _cores,
    "memory": _memory,
    "/dev/shm": _shm,
    "temporary": _temp,
    "open files (-n)": _files,
    "processes (-u)": _processes,
    "locked (-l)": _locked,
    "cgroup": _cgroups,
    "FUSE": _fuse,
    "strace": _strace,
    "py-spy": _py_spy,
    "nursery": _nursery,
    "hot functions": _lane,
    "unseen names": _early,
    "trial run": _try,
}


def _tool(name: str, means: str) -> _Found:
    path = shutil.which(name)
    return (Level.OK if path else Level.ABSENT), path or "not installed", f"not needed; {means}"


def _cgroup_path() -> str | None:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    path = f"/sys/fs/cgroup{own}" if own is not None else None
    return path if path and os.path.isdir(path) else None


def _cgroup(name: str) -> str:
    path = _cgroup_path()
    try:
        return Path(path or "", name).read_text().strip() if path else ""
    except OSError:
        return ""


def _kind_of(path: Path) -> str:
    """The file system's type: what is fast on tmpfs is not on NFS."""
    best, kind = "", "?"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, found, *_ = line.split()
        if str(path).startswith(where) and len(where) > len(best):
            best, kind = where, found
    return kind


def _size(count: int) -> str:
    for unit, size in (("GiB", _GIB), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}" if count < 10 * size else f"{count / size:.0f} {unit}"
    return f"{count} B"


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
