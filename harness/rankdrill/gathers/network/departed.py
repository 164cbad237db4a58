"""Whether a member of the caller's group has left it, of which the gathers know nothing yet: it never came to one.

Every member of a gloo group listens at an address of its own for as long as it is in the group. Where that is an
address of this machine the kernel tells whether somebody still does; of other machines nothing is known here.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from typing import Any

from rankdrill.gathers.network import torch_seam

__all__ = ["departed"]

_LISTENS = "0A"  # the state of a listening socket in /proc/net/tcp


def departed(store: Any, rank: int) -> str | None:
    """What shows that `rank` of the group with that `store` has certainly left it; None where nothing does."""
    try:
        address = torch_seam.gloo_address(store, rank)
        if address is None or not _is_here(address[0]) or _is_listened_at(*address):
            return None
    except (OSError, RuntimeError):
        return None
    return f"its process ended, or left the group (nobody listens at {address[0]} port {address[1]}, where gloo did)"


def _is_here(ip: str) -> bool:
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((ip, 0))
        except OSError:
            return False
    return True


def _is_listened_at(ip: str, port: int) -> bool:
    """Whether some process of this network namespace listens there. Raises OSError where the kernel does not tell."""
    packed = ipaddress.ip_address(ip).packed
    # As the kernel prints it: in words of 32 bits, each as a number of this machine.
    words = [int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4)]
    wanted = f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"
    with open("/proc/net/tcp6" if ":" in ip else "/proc/net/tcp") as table:
        return any(line.split()[1] == wanted and line.split()[3] == _LISTENS for line in table)
