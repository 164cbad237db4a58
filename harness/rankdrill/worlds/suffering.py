"""What a rank raises for no fault of its own: another one is gone, or late."""

from __future__ import annotations

import re

from rankdrill.errors import PeerLost

__all__ = ["lost_another"]

# torch gives these no type of their own: gloo raises RuntimeError, newer versions a subclass of it. What begins with
# ProcessGroupGloo:: is about the call's own arguments.
_PEER_TROUBLE = re.compile(
    r"connection (was )?(likely )?(closed|reset|refused)|broken pipe|timed out|timeout|\bgloo[/:]|socket closed"
    r"|aborted|monitoredbarrier",
    re.IGNORECASE,
)


def lost_another(error: BaseException | None) -> bool:
    """Whether `error` only says that its rank has lost another, or has waited for it too long."""
    return isinstance(error, PeerLost) or (isinstance(error, RuntimeError) and bool(_PEER_TROUBLE.search(str(error))))
