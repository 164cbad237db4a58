"""What a rank raises for no fault of its own: another one is gone, or late."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankdrill.errors import PeerLost

__all__ = ["led_to", "lost_another"]

# torch gives these no type of their own: gloo raises RuntimeError, newer versions a subclass of it. What begins with
# ProcessGroupGloo:: is about the call's own arguments.
_PEER_TROUBLE = re.compile(
    r"connection (was )?(likely )?(closed|reset|refused)|broken pipe|timed out|timeout|\bgloo[/:]|socket closed"
    r"|aborted|monitoredbarrier",
    re.IGNORECASE,
)


def lost_another(error: BaseException | None) -> bool:
    """Whether `error` only says that its rank has lost another, or has waited for it too long.

    Or it was raised where that was handled: as ``sys.exit(1)`` below ``except Exception`` is.
    """
    return error is not None and any(_says_so(each) for each in (error, *led_to(error)))


def _says_so(error: BaseException) -> bool:
    return isinstance(error, PeerLost) or (isinstance(error, RuntimeError) and bool(_PEER_TROUBLE.search(str(error))))


def led_to(error: BaseException) -> Iterator[BaseException]:
    """What `error` was raised from, or in the handling of, and so on."""
    seen = {id(error)}
    before = error.__cause__ or error.__context__
    while before is not None and id(before) not in seen:
        yield before
        seen.add(id(before))
        before = before.__cause__ or before.__context__
