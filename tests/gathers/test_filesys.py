"""all_gather_via_filesys on real ranks, with a healthy and with a broken file system."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import all_gather_via_filesys
from rankdrill.gathers.encoding.coding import coding_for
from rankdrill.gathers.encoding.wire import encode
from rankdrill.gathers.host.liveness import identify
from rankdrill.gathers.storage import files
from tests.gathers.attempts import TIMEOUT_S, all_alike, attempt, raiser, replaced


def gather(directory: Any, value: Any = None, **kwargs: Any) -> list[Any]:
    kwargs.setdefault("timeout", TIMEOUT_S)
    return all_gather_via_filesys(dist.get_rank() if value is None else value, directory, **kwargs)


def test_values_and_nothing_left(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    def body() -> list[float]:
        return [value[-1].item() for value in gather(tmp_path, torch.full((1 << 20,), float(dist.get_rank())))]

    assert all_alike(world.run(body).unwrap()) == [0.0, 1.0, 2.0, 3.0]
    assert list(tmp_path.iterdir()) == []


def test_to_rank_0_only(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    got = world.run(lambda: gather(tmp_path, gather_to_rank_0_only=True)).unwrap()
    assert got == [[0, 1, 2, 3], [], [], []]


def test_subgroups_share_a_directory(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    def body() -> list[int]:
        group = [dist.new_group([0, 1]), dist.new_group([2, 3])][dist.get_rank() // 2]
        return gather(tmp_path, group=group)

    assert world.run(body).unwrap() == [[0, 1], [0, 1], [2, 3], [2, 3]]


def test_directory_from_the_environment_and_by_default(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    def body() -> tuple[Any, Any, Any]:
        os.environ["EXP_DIR"] = str(tmp_path / "experiment")
        by_environment = gather(None)
        made = sorted(os.listdir(tmp_path))
        del os.environ["EXP_DIR"]
        return by_environment, made, gather(None)

    assert all_alike(world.run(body).unwrap()) == ([0, 1, 2, 3], ["experiment"], [0, 1, 2, 3])


def test_random_state_is_neither_read_nor_advanced(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    def body() -> bool:
        random.seed(7)
        torch.manual_seed(7)
        before = random.getstate(), torch.get_rng_state()
        gather(tmp_path)
        return random.getstate() == before[0] and torch.equal(torch.get_rng_state(), before[1])

    assert all_alike(world.run(body).unwrap()) is True


def torn(real: Callable[..., int]) -> Callable[..., int]:
    def write(descriptor: int, data: Any) -> int:
        real(descriptor, bytes(data)[: len(data) // 2])
        return len(data)

    return write


def late(real: Callable[..., Any]) -> Callable[..., Any]:
    """A file that is to be seen half a second after its rank has written it."""

    def offer(*args: Any) -> Any:
        offered = real(*args)
        os.rename(offered.path, offered.path + ".late")
        threading.Timer(0.5, os.rename, (offered.path + ".late", offered.path)).start()
        return offered

    return offer


def never(real: Callable[..., Any]) -> Callable[..., Any]:
    def offer(*args: Any) -> Any:
        offered = real(*args)
        os.unlink(offered.path)
        return offered

    return offer


def planting(real: Callable[..., Any]) -> Callable[..., Any]:
    def offer(*args: Any) -> Any:
        offered = real(*args)
        with open(offered.path, "r+b") as file:
            file.seek(-20, os.SEEK_END)
            file.write(b"planted")
        return offered

    return offer


def no_effect(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: None


def fails(real: Callable[..., Any]) -> Callable[..., Any]:
    return raiser(OSError(5, "input/output error"))


def struck(directory: str, name: str, strike: Callable[..., Any], timeout: float, within: Any = os) -> tuple[Any, Any]:
    """A gather with one function broken on rank 1, of `os` by default, and one with everything whole."""
    gather(directory)  # connected before anything breaks: or rank 1 shares no memory with the others from then on
    with replaced(within, name, strike(getattr(within, name)), dist.get_rank() == 1):
        broken = attempt(gather, directory, timeout=timeout)
    return broken, attempt(gather, directory)


@pytest.mark.parametrize("name", ["open", "write", "fstat", "unlink"])
def test_a_call_that_fails(world: rankdrill.World, tmp_path: pathlib.Path, name: str) -> None:
    broken, after = all_alike(world.run(struck, str(tmp_path), name, fails, TIMEOUT_S).unwrap())
    assert (broken.kind, broken.ranks) == ("StorageError", (1,))
    assert after == [0, 1, 2, 3]
    # Only what could not be removed is still there.
    assert bool(list(tmp_path.iterdir())) == (name == "unlink")


def test_a_read_that_fails(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    plan = rankdrill.Plan.parse('rank 1: io_error at file.read on "*/rankdrill-*" #3')
    broken = all_alike(world.run(lambda: attempt(gather, str(tmp_path), timeout=TIMEOUT_S), plan=plan).unwrap())
    assert (broken.kind, broken.ranks) == ("StorageError", (1,))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "strike"), [("unlink", no_effect), ("write", torn)])
def test_a_call_that_lies(world: rankdrill.World, tmp_path: pathlib.Path, name: str, strike: Any) -> None:
    broken, after = all_alike(world.run(struck, str(tmp_path), name, strike, TIMEOUT_S).unwrap())
    assert (broken.kind, broken.ranks) == ("StorageError", (1,))
    assert after == [0, 1, 2, 3]


def test_a_file_that_never_appears(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    broken, after = all_alike(world.run(struck, str(tmp_path), "offer", never, 6.0, files).unwrap())
    assert (broken.kind, broken.ranks) == ("StorageError", (1,)), broken
    assert after == [0, 1, 2, 3]


def test_a_file_that_appears_late(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    got = world.run(struck, str(tmp_path), "offer", late, TIMEOUT_S, files).unwrap()
    assert all_alike(got) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("in the way")

    def body() -> tuple[Any, Any]:
        return attempt(gather, tmp_path / "file" / "below"), attempt(gather, tmp_path / "good")

    broken, after = all_alike(world.run(body).unwrap())
    assert (broken.kind, broken.ranks) == ("StorageError", (0, 1, 2, 3))
    assert after == [0, 1, 2, 3]


def test_different_directories(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    def body() -> Any:
        return attempt(gather, tmp_path / ("other" if dist.get_rank() == 2 else "usual"))

    broken = all_alike(world.run(body).unwrap())
    assert (broken.kind, broken.ranks) == ("ArgumentMismatch", (2,))


def test_a_file_of_somebody_else_is_never_loaded(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    broken, after = all_alike(world.run(struck, str(tmp_path), "offer", planting, TIMEOUT_S, files).unwrap())
    assert (broken.kind, broken.ranks) == ("StorageError", (1,))
    assert "other content" in broken.text
    assert after == [0, 1, 2, 3]


def in_its_place(make: Callable[[str], None]) -> Callable[..., Any]:
    """What somebody else who may write to the directory can do to a file there."""

    def planted(real: Callable[..., Any]) -> Callable[..., Any]:
        def offer(*args: Any) -> Any:
            offered = real(*args)
            os.unlink(offered.path)
            make(offered.path)
            return offered

        return offer

    return planted


def socket_at(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(os.path.dirname(path)):
        listener.bind(os.path.basename(path))  # the whole path may be too long for an address


PLANTED: dict[str, Callable[[str], None]] = {
    "a pipe": os.mkfifo,
    "a directory": os.mkdir,
    "a link": lambda path: os.symlink("/dev/zero", path),
    "a socket": socket_at,
}


@pytest.mark.parametrize("what", PLANTED)
def test_nobody_waits_for_what_was_planted(world: rankdrill.World, tmp_path: pathlib.Path, what: str) -> None:
    began = time.monotonic()
    got = world.run(struck, str(tmp_path), "offer", in_its_place(PLANTED[what]), TIMEOUT_S, files).unwrap()
    broken, after = all_alike(got)
    assert (broken.kind, broken.ranks) == ("StorageError", (1,))
    assert "is not the file that its rank wrote" in broken.text
    assert after == [0, 1, 2, 3]
    assert time.monotonic() - began < TIMEOUT_S


@pytest.mark.parametrize("what", PLANTED)
def test_what_was_planted_costs_no_descriptor(tmp_path: pathlib.Path, what: str) -> None:
    nonce = b"n" * 16
    offered = in_its_place(PLANTED[what])(files.offer)(str(tmp_path), encode("value"), nonce, identify())
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(files.WrongContentError, match="is not the file that its rank wrote"):
        files.read(offered, nonce, time.monotonic())
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_one_rank_alone_does_not_see(tmp_path: pathlib.Path) -> None:
    """It looks for it as long as it may, and the others are still there to be told."""

    def body() -> Any:
        real, writer = os.open, gather(tmp_path, os.getpid())[0]

        def blind(path: Any, *args: Any, **kwargs: Any) -> int:
            if f"-{writer}-" in str(path):
                raise FileNotFoundError(errno.ENOENT, "not here yet", path)
            return real(path, *args, **kwargs)

        with replaced(os, "open", blind, dist.get_rank() == 2):
            broken = attempt(gather, tmp_path, timeout=7.0)
        return broken, attempt(gather, tmp_path)

    with rankdrill.World(3) as world:
        broken, after = all_alike(world.run(body).unwrap())
    assert (broken.kind, broken.ranks) == ("StorageError", (2,))
    assert after == [0, 1, 2]


def test_a_file_handle_that_went_stale_is_looked_up_again(tmp_path: pathlib.Path) -> None:
    """As NFS asks for: ESTALE says that what a name stood for is gone, not the file."""
    nonce = b"n" * 16
    offered = files.offer(str(tmp_path), encode("value"), nonce, identify())
    real, refused = os.open, iter([errno.ESTALE, errno.ESTALE])

    def stale(path: Any, *args: Any, **kwargs: Any) -> int:
        number = next(refused, 0) if path == offered.path else 0
        if number:
            raise OSError(number, os.strerror(number), path)
        return real(path, *args, **kwargs)

    with replaced(os, "open", stale):
        assert files.read(offered, nonce, time.monotonic() + TIMEOUT_S).load(coding_for(False)) == "value"
    assert list(refused) == []
