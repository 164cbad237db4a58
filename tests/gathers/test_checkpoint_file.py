"""The file of a checkpoint: on a full disk, beside leftovers, damaged, of somebody else."""

from __future__ import annotations

import os
import pathlib
import resource
import signal
import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.errors import StorageError
from rankdrill.gathers import gather_and_save_checkpoint, load_checkpoint
from rankdrill.gathers.host.liveness import Identity, identify
from tests.gathers.attempts import all_alike, attempt, replaced
from tests.gathers.checkpoints import in_directory, load, loaded, save


@pytest.mark.parametrize("shift", range(0, 60_000, 12_345))
def test_a_full_disk_is_an_error_wherever_it_is_full(
    path: pathlib.Path, shift: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real thing: the kernel refuses what goes beyond the limit, with EFBIG for ENOSPC."""
    gather_and_save_checkpoint(path, "former")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (shift, before[1]))
        with pytest.raises(StorageError, match=r"rank 0: OSError: \[Errno 27\] File too large"):
            gather_and_save_checkpoint(path, "new", torch.ones(20_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert load_checkpoint(path).local_state == "former"
    assert in_directory(path) == ["last.pt"]


def test_only_what_the_dead_left_is_removed(path: pathlib.Path) -> None:
    gather_and_save_checkpoint(path, 1)
    me = identify()
    gone = Identity(me.machine, 2**22 + 1, 5)
    elsewhere = Identity(me.machine ^ 1, 2**22 + 1, 5)
    names = {
        "mine": f".rankdrill-checkpoint-{me}-{'aa' * 16}.part",
        "left": f".rankdrill-checkpoint-{gone}-{'aa' * 16}.part",
        "elsewhere": f".rankdrill-checkpoint-{elsewhere}-{'aa' * 16}.part",
        "old": f".rankdrill-checkpoint-{elsewhere}-{'bb' * 16}.part",
        "other": ".rankdrill-checkpoint-notes.part",
    }
    for name in names.values():
        (path.parent / name).write_bytes(b"half")
    os.utime(path.parent / names["old"], (0, 0))
    gather_and_save_checkpoint(path, 2)
    assert set(in_directory(path)) == {"last.pt", names["mine"], names["elsewhere"], names["other"]}


# ---------------------------------------------------------------------------------------------- files that are none


def damaged(path: pathlib.Path, how: str) -> None:
    whole = path.read_bytes()
    match how:
        case "missing":
            path.unlink()
        case "torn":
            path.write_bytes(whole[: len(whole) // 2])
        case "torn inside":  # right behind the archive of a rank's state
            end = [at for at in range(len(whole)) if whole.startswith(b"PK\5\6", at)][1]
            path.write_bytes(whole[: end + 22])
        case "damaged":  # somewhere in the weights
            path.write_bytes(whole[:100_000] + bytes([whole[100_000] ^ 1]) + whole[100_001:])
        case "empty":
            path.write_bytes(b"")
        case "of torch":
            torch.save({"model": 1}, path)
        case "a directory":
            path.unlink()
            path.mkdir()
        case "a pipe":
            path.unlink()
            os.mkfifo(path)
        case "open to all":
            path.chmod(0o666)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("missing", "FileNotFoundError"),
        ("torn", "torn or damaged"),
        ("torn inside", "torn or damaged"),
        ("damaged", "torn or damaged"),
        ("empty", "torn or damaged"),
        ("of torch", "not written by gather_and_save_checkpoint"),
        ("a directory", "IsADirectoryError"),
        ("a pipe", "not a file"),
        ("open to all", "chmod o-w"),
    ],
)
def test_a_file_that_is_none_is_refused_by_all(world: rankdrill.World, path: pathlib.Path, how: str, text: str) -> None:
    world.run(save, path).unwrap()
    damaged(path, how)
    failed = all_alike(world.run(lambda: attempt(load, path)).unwrap())
    assert (failed.kind, failed.ranks) == ("StorageError", (0, 1, 2, 3))
    assert text in failed.text
    assert str(path) in failed.text


def test_cut_anywhere_it_is_refused(path: pathlib.Path) -> None:
    gather_and_save_checkpoint(path, list(range(10)), {"w": torch.ones(100)})
    whole = path.read_bytes()
    for size in [*range(0, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(StorageError, match="torn or damaged"):
            load_checkpoint(path)


@pytest.mark.parametrize("mode", [0o620, 0o660, 0o664])
def test_what_its_group_may_write_is_not_run(world: rankdrill.World, path: pathlib.Path, mode: int) -> None:
    """Who saves under umask 002 and copies the file has one of these: the safe unpickler still loads it."""
    world.run(save, path).unwrap()
    path.chmod(mode)
    failed, safe = zip(*world.run(lambda: (attempt(load, path, weights_only=False), load(path))).unwrap(), strict=True)
    refused = all_alike(list(failed))
    assert (refused.kind, refused.ranks) == ("StorageError", (0, 1, 2, 3))
    assert f"can be written by its group ({path.stat().st_gid})" in refused.text
    assert "chmod g-w" in refused.text
    assert list(safe) == loaded(0)
    path.chmod(0o644)
    assert world.run(lambda: load(path, weights_only=False)).unwrap() == loaded(0)


def test_directories_for_it_are_private(tmp_path: pathlib.Path) -> None:
    before = os.umask(0o002)
    try:
        gather_and_save_checkpoint(tmp_path / "runs" / "7" / "last.pt", 1)
    finally:
        os.umask(before)
    made = (tmp_path / "runs", tmp_path / "runs" / "7")
    assert [one.stat().st_mode & 0o777 for one in made] == [0o700] * 2


def test_what_another_user_wrote_is_refused(world: rankdrill.World, path: pathlib.Path) -> None:
    world.run(save, path).unwrap()

    def body() -> Any:
        with replaced(os, "geteuid", lambda: 4711, dist.get_rank() == 1):
            return attempt(load, path)

    failed = all_alike(world.run(body).unwrap())
    assert (failed.kind, failed.ranks) == ("StorageError", (1,))
    assert f"belongs to user {os.geteuid()}, and this process to user 4711" in failed.text


def test_ranks_that_see_different_checkpoints_do_not_go_on(world: rankdrill.World, path: pathlib.Path) -> None:
    def body() -> Any:
        save(path, 1)
        first = load(path)
        save(path, 2)
        return first, attempt(load, path), load(path)

    # As a network file system may show it.
    got = world.run(body, plan=rankdrill.Plan.parse('rank 3: stale at file.open on "last.pt" #2')).unwrap()
    failed = all_alike([one[1] for one in got])
    assert (failed.kind, failed.ranks) == ("ArgumentMismatch", (3,)), failed
    assert failed.text.count("called with checkpoint") == 2
    assert [(one[0], one[2]) for one in got] == list(zip(loaded(1), loaded(2), strict=True))


def test_a_renaming_that_had_no_effect_is_an_error(path: pathlib.Path) -> None:
    gather_and_save_checkpoint(path, 1)
    with (
        replaced(os, "replace", lambda *_: None),
        pytest.raises(StorageError, match="is not there after it was renamed"),
    ):
        gather_and_save_checkpoint(path, 2)
    assert load_checkpoint(path).local_state == 1
    assert in_directory(path) == ["last.pt"]


def test_a_checkpoint_that_appears_late_is_waited_for(path: pathlib.Path) -> None:
    gather_and_save_checkpoint(path, 1)
    late = path.with_name("late")
    path.rename(late)
    threading.Timer(0.3, late.rename, [path]).start()
    assert load_checkpoint(path).local_state == 1
