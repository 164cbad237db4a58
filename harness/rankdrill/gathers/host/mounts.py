"""On what kind of file system an open file lies."""

from __future__ import annotations

__all__ = ["is_local"]

# File systems of this machine alone, whose files stay readable to whoever has them open or mapped, removed or not.
# Anything else may be somebody else's, as NFS and FUSE are, and a page that is gone there ends the reader by SIGBUS.
_LOCAL = {"tmpfs", "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "overlay"}


def is_local(descriptor: int) -> bool:
    """Whether the file under `descriptor` certainly lies on a file system of this machine."""
    try:
        with open(f"/proc/self/fdinfo/{descriptor}") as told:
            mount = next(line.split()[1] for line in told if line.startswith("mnt_id:"))
        with open("/proc/self/mountinfo") as table:
            kinds = [line.rpartition(" - ")[2].split()[0] for line in table if line.split(" ", 1)[0] == mount]
    except (OSError, StopIteration, IndexError):
        return False
    return len(kinds) == 1 and kinds[0] in _LOCAL
