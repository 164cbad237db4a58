"""The rank session's entry points, named here without importing torch: the controller only sends them."""

from __future__ import annotations

from typing import Any

__all__ = ["call", "example", "finish", "setup", "teardown"]


def setup(*args: Any) -> Any:
    """See `rank_session.setup`."""
    from rankdrill.plugin import rank_session

    return rank_session.setup(*args)


def call(*args: Any) -> Any:
    """See `rank_session.call`."""
    from rankdrill.plugin import rank_session

    return rank_session.call(*args)


def example(*args: Any) -> Any:
    """See `rank_session.example`."""
    from rankdrill.plugin import rank_session

    return rank_session.example(*args)


def teardown(*args: Any) -> Any:
    """See `rank_session.teardown`."""
    from rankdrill.plugin import rank_session

    return rank_session.teardown(*args)


def finish(*args: Any) -> Any:
    """See `rank_session.finish`."""
    from rankdrill.plugin import rank_session

    return rank_session.finish(*args)
