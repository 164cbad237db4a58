"""What jobs call on a rank, named here without importing torch: the controller only sends it."""

from __future__ import annotations

from typing import Any

__all__ = ["obey"]


def obey(context: Any, wanted: Any, command: Any) -> Any:
    """See `RankSession.obey`."""
    __tracebackhide__ = True
    from rankdrill.plugin.on_rank.session import RankSession

    return RankSession.of(context, wanted).obey(command)
