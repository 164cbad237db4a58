"""What all ranks raise because one of them failed says which: `torch.distributed.checkpoint` does so."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from rankdrill import World


class Refusing:
    def __reduce__(self) -> str:
        raise TypeError("this is not to be saved")


def saves_what_cannot_be(to: Path, who: tuple[int, ...]) -> None:
    state = {"a": torch.ones(2), f"mine {dist.get_rank()}": Refusing() if dist.get_rank() in who else 3}
    save(state, checkpoint_id=to)


def asked_for_more_than_was_saved(to: Path) -> None:
    """By the last of a group of two."""
    some = dist.new_group([1, 3])
    if dist.get_rank() % 2 == 0:
        return
    state = {"a": torch.ones(2)}
    save(state, checkpoint_id=to, process_group=some)
    more = {"b": torch.ones(2)} if dist.get_rank() == 3 else {}
    load(state | more, checkpoint_id=to, process_group=some)


def saves_alone(to: Path) -> None:
    """Without the others: who fails is always rank 0 of a group of one."""
    if dist.get_rank() == 2:
        save({"a": Refusing()}, checkpoint_id=to, no_dist=True)


def test_who_could_not_save_is_at_fault_and_those_that_are_told_of_it_are_not(fresh: World, tmp_path: Path) -> None:
    outcome = fresh.run(saves_what_cannot_be, tmp_path / "checkpoint", (2,))
    assert (outcome.culprits, outcome.victims) == ((2,), (0, 1, 3))
    assert "rank 2 raised TypeError: this is not to be saved" in outcome.summary()
    assert str(outcome.ranks[0]) == "rank 0 raised CheckpointException, for what rank 2 raised"


def test_of_several_each_is(fresh: World, tmp_path: Path) -> None:
    outcome = fresh.run(saves_what_cannot_be, tmp_path / "checkpoint", (1, 3))
    assert (sorted(outcome.culprits), outcome.victims) == ([1, 3], (0, 2))


def test_who_fails_in_a_group_is_told_by_its_number_among_all(fresh: World, tmp_path: Path) -> None:
    outcome = fresh.run(asked_for_more_than_was_saved, tmp_path / "checkpoint")
    assert (outcome.culprits, outcome.victims) == ((3,), (1,))
    assert "Missing key in checkpoint state_dict: b" in outcome.summary()


def test_who_saves_alone_fails_alone(fresh: World, tmp_path: Path) -> None:
    outcome = fresh.run(saves_alone, tmp_path / "checkpoint")
    assert (outcome.culprits, outcome.victims) == ((2,), ())
