"""A world whose end is interrupted can be ended again."""

from __future__ import annotations

import pytest

from rankdrill import World
from rankdrill.worlds.processes.client import RankHandle


def returns() -> None:
    pass


def test_ctrl_c_as_a_world_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes once the first rank's pipes are closed; what is closed by then is not asked again."""
    closing = RankHandle.close

    def interrupted(handle: RankHandle) -> None:
        closing(handle)
        monkeypatch.undo()
        raise KeyboardInterrupt

    world = World(2)
    assert world.run(returns).ok
    monkeypatch.setattr(RankHandle, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        world.__exit__(None, None, None)
    world.__exit__(None, None, None)
    with World(2) as another:
        assert another.run(returns).ok
