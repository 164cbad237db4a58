"""weights_only=True on every path: what arrives, what does not, and ranks that send what no honest rank sends."""

from __future__ import annotations

import io
import pathlib
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.errors import StorageError
from rankdrill.gathers import NFSWorkspace
from rankdrill.gathers.encoding import coding
from rankdrill.gathers.encoding.wire import Encoded
from tests.gathers.attempts import TIMEOUT_S, Raised, all_alike, attempt, replaced
from tests.gathers.every_path import (
    ANY_VALUE,
    ATTACKS,
    Malice,
    all_gather_object,
    archive_of,
    gather_object,
    get_tensors_parallel,
    in_an_archive,
    of_bytes,
    saved_the_old_way,
)

SMALL, LARGE = 10, 50_000
BOMB_BYTES, GROWTH_BYTES = 256 << 20, 64 << 20

Gather = Callable[..., list[Any]]
every_path = pytest.mark.parametrize("gather", ANY_VALUE, ids=lambda gather: gather.__name__)
every_size = pytest.mark.parametrize("length", [SMALL, LARGE])


class Custom:
    """A class that the safe unpickler does not know."""


def value_of(rank: int, length: int) -> dict[str, Any]:
    return {
        "numbers": (rank, 2.5, True, None, -(2**70)),
        "text": "ä" * length,
        "bytes": (b"\x00\xff", bytearray(3)),
        "nested": [{"set": {rank}}, ()],
        "tensor": torch.full((length,), float(rank)),
        "view": torch.arange(rank, rank + 100)[10:13],
        "empty": torch.empty(0, 3),
        "parameter": torch.nn.Parameter(torch.full((2,), float(rank))),
        "learned": torch.ones(2, requires_grad=True),
    }


def told(value: dict[str, Any]) -> Any:
    """`value` in words that compare."""
    tensors = {key: one for key, one in value.items() if isinstance(one, torch.Tensor)}
    return (
        [(type(one).__name__, one.dtype, one.requires_grad, one.tolist()) for one in tensors.values()],
        {key: one for key, one in value.items() if key not in tensors},
    )


@every_path
@every_size
def test_values_come_in_rank_order(world: rankdrill.World, tmp_path: pathlib.Path, gather: Gather, length: int) -> None:
    def body() -> bool:
        seen = gather(value_of(dist.get_rank(), length), str(tmp_path), weights_only=True)
        for one in seen:
            one["tensor"] += 1  # it is this rank's own
        expected = [value_of(rank, length) for rank in range(4)]
        for one in expected:
            one["tensor"] += 1
        return [told(one) for one in seen] == [told(one) for one in expected] or (seen == [] and dist.get_rank() > 0)

    assert all_alike(world.run(body).unwrap()) is True
    assert list(tmp_path.iterdir()) == []


@every_size
def test_tensors_to_the_first(world: rankdrill.World, length: int) -> None:
    def body() -> Any:
        mine = None if dist.get_rank() == 1 else torch.full((length,), dist.get_rank())
        seen = get_tensors_parallel(mine, "", weights_only=True)
        return [one if one is None else (len(one), one[-1].item()) for one in seen]

    assert world.run(body).unwrap() == [[(length, 0), None, (length, 2), (length, 3)], [], [], []]


@every_size
def test_a_workspace(world: rankdrill.World, tmp_path: pathlib.Path, length: int) -> None:
    def body() -> Any:
        rank = dist.get_rank()
        with NFSWorkspace(tmp_path, weights_only=True, meeting=True, timeout=TIMEOUT_S) as workspace:
            workspace.write_configs_and_weights({"rank": rank}, {"w": torch.full((length,), rank)})
            failed = attempt(workspace.write_configs_and_weights, Custom() if rank == 2 else 0, {})
            config, weights = workspace.read_configs_and_weights_from_rank((rank + 1) % 4)
            dist.barrier()
        return failed, config["rank"], weights["w"][-1].item()

    got = world.run(body).unwrap()
    failed = all_alike([one[0] for one in got])
    assert (failed.kind, failed.ranks) == ("EncodeError", (2,))
    assert [one[1:] for one in got] == [(peer, peer) for peer in (1, 2, 3, 0)]


@every_path
def test_what_would_not_be_loaded_is_not_sent(world: rankdrill.World, tmp_path: pathlib.Path, gather: Gather) -> None:
    def body() -> Any:
        mine = Custom() if dist.get_rank() == 2 else 0
        failed = attempt(gather, mine, str(tmp_path), weights_only=True)
        seen = gather(dist.get_rank(), str(tmp_path), weights_only=True)
        return failed, seen or list(range(4))

    failed, after = all_alike(world.run(body).unwrap())
    assert (failed.kind, failed.ranks, after) == ("EncodeError", (2,), [0, 1, 2, 3])
    assert f"{Custom.__module__}.Custom" in failed.text
    assert "add_safe_globals" in failed.text


@every_path
def test_ranks_that_disagree(world: rankdrill.World, tmp_path: pathlib.Path, gather: Gather) -> None:
    def body() -> Any:
        failed = attempt(gather, torch.ones(LARGE), str(tmp_path), weights_only=dist.get_rank() != 1)
        seen = gather(dist.get_rank(), str(tmp_path))
        return failed, seen or list(range(4))

    failed, after = all_alike(world.run(body).unwrap())
    assert (failed.kind, failed.ranks, after) == ("ArgumentMismatch", (1,), [0, 1, 2, 3])
    assert "The other ranks called with weights_only=True" in failed.text


def test_ranks_that_disagree_on_a_workspace(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    # As long as a path may be: what differs must not be what is cut off.
    base = tmp_path / ("d" * 200) / ("e" * 200)

    def body() -> Any:
        return attempt(NFSWorkspace, base, weights_only=dist.get_rank() == 3, meeting=True, timeout=TIMEOUT_S)

    failed = all_alike(world.run(body).unwrap())
    assert (failed.kind, failed.ranks) == ("ArgumentMismatch", (3,))


# ---------------------------------------------------------------------------------------------- malicious ranks


def sends(payload: Callable[[], Encoded]) -> Any:
    """Inside, rank 1 sends what `payload` makes, whatever it is given."""
    return replaced(coding.Safe, "encode", lambda *_: payload(), dist.get_rank() == 1)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
@every_path
@pytest.mark.parametrize("length", [SMALL, pytest.param(LARGE, marks=pytest.mark.nightly)])
def test_nothing_of_another_rank_is_unpickled(
    world: rankdrill.World, tmp_path: pathlib.Path, gather: Gather, attack: Any, length: int
) -> None:
    effect = tmp_path / "effect"

    def body() -> Any:
        with sends(lambda: attack(Malice(str(effect)), 4 * length)):
            failed = attempt(gather, 0, str(tmp_path), weights_only=True)
        seen = gather(dist.get_rank(), str(tmp_path), weights_only=True)
        return failed, seen or list(range(4))

    failed, after = all_alike(world.run(body).unwrap())
    assert not effect.exists()
    assert (failed.kind, failed.ranks, after) == ("DecodeError", (1,), [0, 1, 2, 3])


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_nothing_in_a_workspace_is_unpickled(world: rankdrill.World, tmp_path: pathlib.Path, attack: Any) -> None:
    effect = tmp_path / "effect"

    def body() -> str:
        with NFSWorkspace(tmp_path / "workspace", weights_only=True, meeting=True, timeout=TIMEOUT_S) as workspace:
            with sends(lambda: attack(Malice(str(effect)), LARGE)):
                workspace.write_configs_and_weights(0, 0)
            assert workspace.read_configs_and_weights_from_rank(2) == (0, 0)
            with pytest.raises(StorageError, match=r"rank 1: what it wrote cannot be read: (FrameError|LoadError)"):
                workspace.read_configs_and_weights_from_rank(1)
            dist.barrier()
        return "refused"

    assert all_alike(world.run(body).unwrap()) == "refused"
    assert not effect.exists()


def test_the_malice_is_real(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    """What the tests above do not find would be there."""
    effects = [tmp_path / name for name in ("gathered", "saved", "saved of old")]
    world.run(lambda: attempt(gather_object, Malice(str(effects[0])) if dist.get_rank() == 1 else 0, "")).unwrap()
    for effect, attack in zip(effects[1:], (in_an_archive, saved_the_old_way), strict=True):
        (content,) = attack(Malice(str(effect)), LARGE).buffers
        torch.load(io.BytesIO(content), weights_only=False)
    assert all(effect.exists() for effect in effects)


def test_the_bomb_is_real(bomb: bytes) -> None:
    assert len(bomb) < BOMB_BYTES / 100
    assert torch.load(io.BytesIO(bomb), weights_only=True).nbytes == BOMB_BYTES


def test_a_sender_that_keeps_silent_has_no_effect_either(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    """It says that it could load what it sent; then nobody can know whose fault it is, but all raise."""
    effect = tmp_path / "effect"

    def body() -> Any:
        loads = replaced(coding, "_load", lambda *_: 0, dist.get_rank() == 1)
        with sends(lambda: ATTACKS[0](Malice(str(effect)), LARGE)), loads:
            return attempt(all_gather_object, 0, "", weights_only=True)

    assert all_alike(world.run(body).unwrap()).kind == "DecodeError"
    assert not effect.exists()


def peak_bytes() -> int:
    """The most memory this process ever had."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) << 10


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """A tensor of zeros in few bytes."""
    file = io.BytesIO()
    torch.save(torch.zeros(4), file)
    with zipfile.ZipFile(file) as archive:
        (stream,) = (archive.read(name) for name in archive.namelist() if name.endswith("data.pkl"))
    numbers = BOMB_BYTES // 4
    # The length of the storage, and the shape.
    stream = stream.replace(b"K\x04", b"J" + numbers.to_bytes(4, "little"))
    return archive_of(stream, bytes(BOMB_BYTES), zipfile.ZIP_DEFLATED)


@every_path
def test_an_archive_that_is_compressed_is_not_unpacked(
    world: rankdrill.World, tmp_path: pathlib.Path, gather: Gather, bomb: bytes
) -> None:
    def body() -> Any:
        before = peak_bytes()
        with sends(lambda: of_bytes(bomb)):
            failed = attempt(gather, 0, str(tmp_path), weights_only=True)
        assert isinstance(failed, Raised)
        return failed, peak_bytes() - before < GROWTH_BYTES

    failed, frugal = all_alike(world.run(body).unwrap())
    assert (failed.kind, failed.ranks, frugal) == ("DecodeError", (1,), True)
    assert "is compressed" in failed.text
