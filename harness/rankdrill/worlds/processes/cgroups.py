"""The control group that limits a process's memory, and how often the kernel killed for it there."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MemoryCgroup", "find_memory_cgroup", "memory_cgroup_of"]

_KILLS = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)
_NO_LIMIT = 1 << 60  # version 1 spells it as a number of pages as large as there is
_MIB = 1 << 20
_PAGE = 1 << 12  # what the kernel gives of such a file at once; all of it


@dataclass(frozen=True)
class MemoryCgroup:
    """The group in `folder`, in a hierarchy of version `version` that is mounted at `mount`."""

    mount: Path
    folder: Path
    version: int

    def __str__(self) -> str:
        """``cgroup /job/7, limit 512 MiB``: of the groups that it lies in the one whose limit is reached first."""
        limits = {folder: limit for folder in self._path() if (limit := self._limit(folder)) is not None}
        if not limits:
            return f"cgroup {self._name(self.folder)}, without a limit"
        folder = min(limits, key=limits.__getitem__)
        return f"cgroup {self._name(folder)}, limit {_as_text(limits[folder])}"

    def kills(self) -> int | None:
        """How many processes of the group the kernel has killed for memory; None where it does not say."""
        file = "memory.oom_control" if self.version == 1 else "memory.events"
        try:
            found = _KILLS.search(_read(f"{self.folder}/{file}"))
        except OSError:
            return None
        return int(found[1]) if found is not None else None

    def _path(self) -> list[Path]:
        """The group and those that it lies in, innermost first."""
        return [folder for folder in (self.folder, *self.folder.parents) if folder.is_relative_to(self.mount)]

    def _limit(self, folder: Path) -> int | None:
        file = "memory.limit_in_bytes" if self.version == 1 else "memory.max"
        try:
            limit = int((folder / file).read_text())
        except (OSError, ValueError):  # "max"; the outermost group has no such file
            return None
        return limit if limit < _NO_LIMIT else None

    def _name(self, folder: Path) -> str:
        return f"/{folder.relative_to(self.mount)}" if folder != self.mount else "/"


def memory_cgroup_of(pid: int) -> MemoryCgroup | None:
    """The group that process `pid` is in; None where there is none, or no way to read it."""
    try:
        return find_memory_cgroup(Path(f"/proc/{pid}/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    except OSError:
        return None


def find_memory_cgroup(cgroups: str, mounts: str) -> MemoryCgroup | None:
    """The group out of what ``/proc/PID/cgroup`` and ``/proc/self/mountinfo`` hold.

    Version 1 comes first: where its controller of memory is in use, version 2 has none.
    """
    paths: dict[int, Path] = {}
    for line in cgroups.splitlines():
        number, names, path = line.split(":", 2)
        if number == "0" or "memory" in names.split(","):
            paths[2 if number == "0" else 1] = Path(path)
    for version, inside in sorted(paths.items()):
        for root, mount in _hierarchies(mounts, version):
            # A container may see its own part of the hierarchy alone, and be told of a path from outside.
            folder = mount / inside.relative_to(root) if inside.is_relative_to(root) else mount
            return MemoryCgroup(mount, folder, version)
    return None


def _hierarchies(mounts: str, version: int) -> list[tuple[Path, Path]]:
    """What part of a hierarchy is mounted, and where."""
    found = []
    for line in mounts.splitlines():
        mounted, _, how = line.partition(" - ")
        fields, (kind, _, options) = mounted.split(), how.split(" ", 2)
        right = kind == "cgroup2" if version == 2 else kind == "cgroup" and "memory" in options.split(",")
        if right:
            found.append((Path(fields[3]), Path(fields[4])))
    return found


def _as_text(nbytes: int) -> str:
    return f"{nbytes / _MIB:.0f} MiB" if nbytes >= _MIB else f"{nbytes / 1024:.0f} KiB"


def _read(path: str) -> bytes:
    """Asked before each run: without a file object, which makes five more system calls."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _PAGE)
    finally:
        os.close(fd)
