"""Copying in stages, without a GPU: every byte in its place whatever the sizes; and telling GPUs apart."""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import all_gather
from rankdrill.gathers.encoding.wire import bytes_of
from rankdrill.gathers.network import torch_seam
from rankdrill.gathers.transfer import by_gpu as on_device
from rankdrill.gathers.transfer.staging import Staging
from tests.gathers.attempts import TIMEOUT_S, all_alike, attempt, replaced

padded: Any = import_module("rankdrill.gathers.all_gather")  # the package has the function under that name

CPU = torch.device("cpu")


@pytest.mark.parametrize("nbytes", [1, 999, 1000, 1001, 2000, 5003])
def test_what_goes_there_comes_back(nbytes: int) -> None:
    staging = Staging(CPU, stage_bytes=1000)
    sent = torch.randint(256, (nbytes,), dtype=torch.uint8)
    there, back = torch.zeros(nbytes, dtype=torch.uint8), torch.zeros(nbytes, dtype=torch.uint8)
    staging.send((bytes_of(part) for part in torch.split(sent, 1000)), there)
    staging.receive(there, bytes_of(back))
    assert torch.equal(there, sent)
    assert torch.equal(back, sent)


def as_if_on_gpus(names: list[bytes]) -> Any:
    """A gather over the device, which is the CPU, while ranks believe themselves on the GPUs `names`."""
    with (
        replaced(torch_seam, "cuda_backend", lambda group: "nccl"),
        replaced(torch.cuda, "is_available", lambda: True),
        replaced(padded, "device_of", lambda group: CPU),
        replaced(padded, "name_gpu", lambda device: names[dist.get_rank()]),
    ):
        sizes = [300_000, 5, 70_000, 2000]
        sent = b"%d" % dist.get_rank() * sizes[dist.get_rank()]
        found = attempt(all_gather, sent, timeout=TIMEOUT_S)
        return found if not isinstance(found, list) else [(one[:1], len(one)) for one in found]


def test_the_padded_route(world: rankdrill.World) -> None:
    found = all_alike(world.run(as_if_on_gpus, [b"a", b"b", b"c", b"d"]).unwrap())
    assert found == [(b"0", 300_000), (b"1", 5), (b"2", 70_000), (b"3", 2000)]


def test_ranks_on_one_gpu_are_told_so(world: rankdrill.World) -> None:
    failed = all_alike(world.run(as_if_on_gpus, [b"a", b"b", b"a", b"a"]).unwrap())
    assert (failed.kind, failed.ranks) == ("ArgumentMismatch", (2, 3))
    assert "is on the same GPU as rank 0; call torch.cuda.set_device(LOCAL_RANK) first" in failed.text


def test_a_gpu_without_a_name_is_like_no_other() -> None:
    with replaced(torch.cuda, "get_device_properties", lambda device: object()):
        assert on_device.name_gpu(CPU) != on_device.name_gpu(CPU)


def test_what_arrives_is_loaded_at_the_gpu_that_the_group_is_bound_to(world: rankdrill.World) -> None:
    """Whatever the current one is: or a context would come to be on another GPU."""

    def body() -> Any:
        entered: list[Any] = []

        def entering(device: Any) -> Any:
            entered.append(device)
            return contextlib.nullcontext()

        bound = torch.device("cuda", 5)
        with (
            replaced(torch_seam, "bound_device", lambda group: bound),
            replaced(torch.cuda, "device", entering),
        ):
            group = dist.new_group([0, 1, 2, 3])
            seen = all_gather(torch.full((3,), dist.get_rank()), force_cpu=True, group=group, timeout=TIMEOUT_S)
            return [one.tolist() for one in seen], set(entered) == {bound}, on_device.device_of(group) == bound

    assert all_alike(world.run(body).unwrap()) == ([[rank] * 3 for rank in range(4)], True, True)
