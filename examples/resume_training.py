"""Training on four ranks that is killed twice, and ends as if nothing had happened.

    python examples/resume_training.py

Where a data loader stands and what a random generator would draw next is another state on each rank. It is saved with
the model by `gather_and_save_checkpoint`, and each rank gets its own back from `load_checkpoint`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Sampler, TensorDataset

import rankdrill
from rankdrill.gathers import gather_and_save_checkpoint, load_checkpoint

RANKS, SAMPLES, BATCH, EPOCHS, SAVE_EVERY = 4, 240, 4, 2, 4
STEPS = EPOCHS * SAMPLES // (RANKS * BATCH)

# Of torch, what its first optimizer imports: once, instead of in each of 16 ranks.
PRELOAD = ("torch._dynamo", "torch.utils.data")

# What goes wrong in the first and in the second run; the third is left in peace.
DISASTERS = (
    "rank 2: kill after collective.all_reduce #37",  # in its 19th step, with one of two gradients averaged
    "rank 0: crash before file.replace #2",  # with its second checkpoint written, and not yet in place
)


class Share(Sampler[int]):
    """What is left of this rank's share of an epoch. `at` counts what was trained on, not what was fetched ahead."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks
        self.epoch, self.at = 0, 0

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        return iter(order[self.rank :: self.ranks][self.at :])

    def __len__(self) -> int:
        return SAMPLES // self.ranks - self.at


class Training:
    """One rank's part of it."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        numbers = torch.arange(SAMPLES)
        inputs = torch.randn(SAMPLES, 8)
        self.data = TensorDataset(numbers, inputs, inputs.sum(1, keepdim=True))
        self.model = torch.nn.Linear(8, 1)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.share = Share(dist.get_rank(), dist.get_world_size())
        self.noise = torch.Generator().manual_seed(dist.get_rank())  # each rank draws its own
        self.seen: list[tuple[int, int]] = []  # (epoch, number of the sample), of this rank
        self.step = 0

    def train(self, path: str) -> dict[str, Any]:
        """Train to the end, from the checkpoint at `path` if there is one."""
        if os.path.exists(path):
            self.load(path)
        while self.share.epoch < EPOCHS:
            for numbers, inputs, targets in DataLoader(self.data, BATCH, sampler=self.share):
                inputs = inputs + 0.1 * torch.randn(inputs.shape, generator=self.noise)
                self.optimizer.zero_grad()
                torch.nn.functional.mse_loss(self.model(inputs), targets).backward()  # type: ignore[no-untyped-call]
                for gradient in [one.grad for one in self.model.parameters() if one.grad is not None]:
                    dist.all_reduce(gradient)
                    gradient /= dist.get_world_size()
                self.optimizer.step()
                self.seen += [(self.share.epoch, number) for number in numbers.tolist()]
                self.share.at += len(numbers)
                self.step += 1
                if self.step % SAVE_EVERY == 0:
                    self.save(path)
            self.share.epoch, self.share.at = self.share.epoch + 1, 0
        return {"seen": self.seen, "weights": self.model.state_dict()}

    def save(self, path: str) -> None:
        mine = {"at": (self.share.epoch, self.share.at), "noise": self.noise.get_state(), "seen": self.seen}
        alike = {"step": self.step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        gather_and_save_checkpoint(path, mine, alike, timeout=20)

    def load(self, path: str) -> None:
        saved = load_checkpoint(path, timeout=20)
        mine, alike = saved.local_state, saved.shared_state
        (self.share.epoch, self.share.at), self.seen = mine["at"], mine["seen"]
        self.noise.set_state(mine["noise"])
        self.step = alike["step"]
        self.model.load_state_dict(alike["model"])
        self.optimizer.load_state_dict(alike["optimizer"])


def train(path: str) -> dict[str, Any]:
    return Training().train(path)


def run(path: str, disaster: str = "") -> list[dict[str, Any]]:
    """What each rank ends with, None for one that does not come to the end."""
    start = torch.load(path)["shared_state"]["step"] if os.path.exists(path) else 0
    with rankdrill.World(RANKS, preload=PRELOAD) as world:
        outcome = world.run(train, path, plan=rankdrill.Plan.parse(disaster), deadline=60)
    print(f"  from step {start:2}: {disaster or f'trained to step {STEPS}'}")
    return outcome.values if disaster else outcome.unwrap()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        print("undisturbed")
        undisturbed = run(os.path.join(directory, "undisturbed.pt"))
        print("disturbed")
        path = os.path.join(directory, "disturbed.pt")
        for disaster in DISASTERS:
            assert None in run(path, disaster)
        disturbed = run(path)
        left = sorted(os.listdir(directory))

    seen = sorted(sample for rank in disturbed for sample in rank["seen"])
    once = seen == [(epoch, number) for epoch in range(EPOCHS) for number in range(SAMPLES)]
    pairs = zip(undisturbed, disturbed, strict=True)
    equal = all(torch.equal(a["weights"][name], b["weights"][name]) for a, b in pairs for name in a["weights"])
    print(f"every sample seen exactly once per epoch: {once}")
    print(f"weights equal to those of the undisturbed run, bit by bit: {equal}")
    print(f"files left: {', '.join(left)}")
    if not (once and equal):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
