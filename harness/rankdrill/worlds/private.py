"""Private directories: one per controller, mode 0700, swept by the next run if the controller could not."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from pathlib import Path

from rankdrill.worlds.home import home

__all__ = ["SEGMENTS", "PrivateDirectory", "remove_segments", "sweep"]

LOCK_NAME = "lock"
SEGMENTS = Path("/dev/shm")
TRIES = 100


class PrivateDirectory:
    """A directory of this process alone. A lock on it, held while the process lives, tells the living from the dead."""

    def __init__(self) -> None:
        parent = home()
        sweep(parent)
        made = next(filter(None, (_make(parent) for _ in range(TRIES))), None)
        assert made is not None, f"{TRIES} new directories in {parent} were swept before they were locked"
        self.path, self._lock = made

    def remove(self) -> None:
        """Remove the directory and all in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _make(parent: Path) -> tuple[Path, int] | None:
    """A new locked directory, or None where another process swept it before it was locked."""
    path = parent / f"run-{os.getpid()}-{secrets.token_hex(8)}"
    path.mkdir(mode=0o700)
    lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if (path / LOCK_NAME).exists():
        return path, lock
    os.close(lock)
    return None


def sweep(parent: Path) -> list[Path]:
    """Remove what dead controllers left below `parent`; returns what was removed."""
    removed = []
    for run in parent.glob("run-*"):
        try:
            lock = os.open(run / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            # Being made, or being removed, by its owner; if that one died over it, nobody else will remove it.
            if not _owner_lives(run):
                remove_segments(run)
                shutil.rmtree(run, ignore_errors=True)
                removed.append(run)
            continue
        except OSError:
            continue  # no lock of ours
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue  # its controller lives
        else:
            remove_segments(run)
            shutil.rmtree(run, ignore_errors=True)
            removed.append(run)
        finally:
            os.close(lock)
    return removed


def _owner_lives(run: Path) -> bool:
    # The pid may be another process's by now; then the directory waits for a later sweep.
    pid = run.name.split("-")[1]
    return not pid.isdigit() or Path(f"/proc/{pid}").exists()


def remove_segments(run: Path) -> list[str]:
    """Unlink shared-memory segments that the ledgers below `run` say were created and not unlinked."""
    from rankdrill.errors import LedgerError
    from rankdrill.ledger import LedgerReader
    from rankdrill.step import Kind

    left: dict[str, None] = {}
    for path in sorted(run.glob("**/*.ledger")):
        try:
            reader = LedgerReader(path)
        except (OSError, LedgerError):
            continue  # torn before its header: its rank had created nothing yet
        for record in reader.view():
            if record.step.kind is Kind.SHM and record.step.op == "create":
                left[Path(record.step.target).name] = None
        reader.close()
    gone = []
    for name in left:
        segment = SEGMENTS / name
        try:
            if segment.lstat().st_uid == os.getuid():
                segment.unlink()
                gone.append(name)
        except OSError:
            continue
    return gone
