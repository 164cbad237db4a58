"""What keeps this rank from sharing memory with others of its machine, as far as it can tell itself."""

from __future__ import annotations

import errno
import os
import secrets
import socket

from rankdrill.gathers.host.liveness import identify
from rankdrill.gathers.local import segment
from rankdrill.gathers.local.endpoint import DIRECTORY, PREFIX

__all__ = ["PROC", "what_hinders"]

PROC = "/proc"


def what_hinders() -> str:
    """Why nobody can share memory with this process, in one line with the remedy; empty where nothing is found.

    For after the fact: it tries what sharing needs, one after the other.
    """
    if not os.path.isdir(DIRECTORY):
        return f"there is no {DIRECTORY} here; mount a tmpfs there"
    if not os.path.isdir(f"{PROC}/{os.getpid()}/fd"):
        return f"{PROC} is not there, or hides this process; mount it, without hidepid"
    try:
        os.close(segment.proof_of(b""))
        _make_name()
    except AttributeError:
        return "this Python has no memfd_create; it needs Linux"
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"{DIRECTORY} is full; make room there (docker: --shm-size=1g)"
        return f"{DIRECTORY} cannot be used: {error.strerror}"
    return ""


def _make_name() -> None:
    """Make what an endpoint has there, and remove it."""
    path = os.path.join(DIRECTORY, f"{PREFIX}{identify()}-{secrets.token_hex(16)}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        trial.bind(path)
        os.unlink(path)
