"""The paths through files, on a disk that is full, read-only or half there: one rank, a disk of pyfakefs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch  # noqa: F401 - imported before the disk is a fake one, from which it could not be loaded
from pyfakefs.fake_filesystem import FakeFilesystem
from pyfakefs.helpers import reset_ids, set_uid

from rankdrill.errors import StorageError
from rankdrill.gathers import NFSWorkspace, all_gather, all_gather_via_filesys, get_configs_parallel
from rankdrill.gathers.encoding.coding import PICKLED
from rankdrill.gathers.encoding.wire import FRAME_NONCE_BYTES, encode
from rankdrill.gathers.host import liveness
from rankdrill.gathers.host.liveness import Identity, identify
from rankdrill.gathers.storage import files

BASE = "/data/run"
PAYLOAD = {"weights": list(range(20)), "name": "x" * 50}
NONCE = bytes(range(32))
SOMEBODY = 4711  # a user who may not write everywhere, as root may
DAY_S = 24 * 3600


@pytest.fixture(autouse=True)
def unknown() -> Iterator[None]:
    """What is remembered of processes is of the real disk, or of another fake one."""
    for remembered in (liveness._identity_of, liveness._was_gone):
        remembered.cache_clear()
    yield
    for remembered in (liveness._identity_of, liveness._was_gone):
        remembered.cache_clear()


@pytest.fixture
def disk(fs: FakeFilesystem) -> FakeFilesystem:
    """A disk with a /proc on which this process is alive and process 1 is another one."""
    fs.set_disk_usage(1 << 20)
    fs.create_file("/proc/sys/kernel/random/boot_id", contents="a-boot\n")
    fs.create_symlink("/proc/self/ns/pid", "pid:[1]")
    _run(fs, os.getpid(), started=100)
    return fs


def _used(disk: FakeFilesystem) -> int:
    return disk.get_disk_usage()[1]


def _run(fs: FakeFilesystem, pid: int, started: int) -> None:
    fields = ["S", *map(str, range(1, 19)), str(started), "0"]
    fs.create_file(f"/proc/{pid}/stat", contents=f"{pid} (a command) {' '.join(fields)}\n")


@pytest.fixture
def somebody() -> Iterator[None]:
    """The rank runs as a user to whom permissions apply."""
    set_uid(SOMEBODY)
    yield
    reset_ids()


def _by_gather(payload: Any) -> Any:
    return all_gather_via_filesys(payload, BASE)[0]


def _by_switch(payload: Any) -> Any:
    return all_gather(payload, force_filesys=True, filesys_save_dir=BASE)[0]


def _by_configs(payload: Any) -> Any:
    with get_configs_parallel(payload, [0], workspace_path=BASE) as received:
        return received[0]


def _by_workspace(payload: Any) -> Any:
    with NFSWorkspace(BASE) as workspace:
        workspace.write_configs_and_weights(payload, None)
        return workspace.read_configs_and_weights_from_rank(0)[0]


WAYS: dict[str, Callable[[Any], Any]] = {
    "all_gather_via_filesys": _by_gather,
    "all_gather": _by_switch,
    "get_configs_parallel": _by_configs,
    "NFSWorkspace": _by_workspace,
}
every_way = pytest.mark.parametrize("carry", WAYS.values(), ids=WAYS)


@every_way
def test_parents_that_are_missing_are_made(carry: Callable[[Any], Any], disk: FakeFilesystem) -> None:
    assert not disk.exists("/data")
    assert carry(PAYLOAD) == PAYLOAD
    assert os.listdir(BASE) == []


@every_way
def test_a_full_disk_is_an_error_and_leaves_nothing(carry: Callable[[Any], Any], disk: FakeFilesystem) -> None:
    os.makedirs(BASE)
    used = _used(disk)
    outcomes = []
    for free in range(0, 4000, 50):
        disk.set_disk_usage(used + free)
        outcomes.append(_attempt(carry))
        assert os.listdir(BASE) == []
        assert _used(disk) == used
    # As soon as there is room it works again, right after the error.
    assert sorted(outcomes, key=lambda outcome: outcome == PAYLOAD) == outcomes
    assert outcomes[-1] == PAYLOAD
    error = outcomes[0]
    assert isinstance(error, StorageError)
    assert error.ranks == (0,)
    assert "No space left on device" in str(error)


def _attempt(carry: Callable[[Any], Any]) -> Any:
    try:
        return carry(PAYLOAD)
    except StorageError as error:
        return error


@every_way
@pytest.mark.usefixtures("somebody")
def test_a_read_only_directory_is_an_error_and_stays_as_it_is(
    carry: Callable[[Any], Any], disk: FakeFilesystem
) -> None:
    disk.create_dir(BASE)
    disk.chmod(BASE, 0o555, force_unix_mode=True)
    with pytest.raises(StorageError, match=r"rank 0: .*Permission [Dd]enied"):
        carry(PAYLOAD)
    assert os.listdir(BASE) == []


@every_way
@pytest.mark.usefixtures("somebody")
def test_a_read_only_parent_is_an_error(carry: Callable[[Any], Any], disk: FakeFilesystem) -> None:
    disk.create_dir("/data")
    disk.chmod("/data", 0o555, force_unix_mode=True)
    with pytest.raises(StorageError, match=r"rank 0: .*Permission [Dd]enied"):
        carry(PAYLOAD)
    assert os.listdir("/data") == []


@every_way
def test_a_file_in_place_of_the_directory_is_an_error(carry: Callable[[Any], Any], disk: FakeFilesystem) -> None:
    disk.create_file(BASE, contents="in the way")
    with pytest.raises(StorageError, match=r"rank 0: (FileExistsError|NotADirectoryError)"):
        carry(PAYLOAD)
    with open(BASE) as file:
        assert file.read() == "in the way"


def test_after_a_failed_write_the_pair_written_before_is_still_there(disk: FakeFilesystem) -> None:
    with NFSWorkspace(BASE) as workspace:
        workspace.write_configs_and_weights("old", b"weights")
        before = sorted(os.listdir(BASE))
        disk.set_disk_usage(_used(disk) + 10)
        with pytest.raises(StorageError, match="No space left on device"):
            workspace.write_configs_and_weights("new", bytes(1000))
        assert workspace.read_configs_and_weights_from_rank(0) == ("old", b"weights")
        assert sorted(os.listdir(BASE)) == before
        disk.set_disk_usage(1 << 20)
        workspace.write_configs_and_weights("newer", b"")
        assert workspace.read_configs_and_weights_from_rank(0) == ("newer", b"")
        assert len(os.listdir(BASE)) == 1
    assert os.listdir(BASE) == []


def test_a_pair_that_somebody_removed_is_named(disk: FakeFilesystem) -> None:
    with NFSWorkspace(BASE, meeting=True, timeout=0.05) as workspace:
        workspace.write_configs_and_weights("config", None)
        disk.remove_object(os.path.join(BASE, os.listdir(BASE)[0]))
        with pytest.raises(StorageError, match="rank 0: what it wrote cannot be read: FileNotFoundError"):
            workspace.read_configs_and_weights_from_rank(0)


# ---------------------------------------------------------------------------------------------- the files themselves


def _offer() -> files.Offer:
    return files.offer(BASE, encode(PAYLOAD), NONCE, identify())


def test_a_file_is_private_whole_and_at_a_name_nobody_can_guess(disk: FakeFilesystem) -> None:
    before = os.umask(0)
    try:
        offered = _offer()
    finally:
        os.umask(before)
    assert os.listdir(BASE) == [os.path.basename(offered.path)]
    assert os.stat(offered.path).st_mode & 0o777 == 0o600
    assert os.stat(BASE).st_mode & 0o777 == 0o700
    assert NONCE.hex() in offered.path
    assert os.stat(offered.path).st_size == offered.size
    assert files.read(offered, NONCE, time.monotonic()).load(PICKLED) == PAYLOAD


def test_a_name_that_is_taken_is_an_error_and_what_took_it_stays(disk: FakeFilesystem) -> None:
    taken = files.path_of(BASE, NONCE, identify())
    disk.create_file(taken, contents="somebody's")
    with pytest.raises(FileExistsError):
        _offer()
    with open(taken) as file:
        assert file.read() == "somebody's"


def _shorter(content: bytes) -> bytes:
    return content[:-1]


def _flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def _other(content: bytes) -> bytes:
    return bytes(encode("another payload".ljust(200, ".")).to_bytearray(NONCE[:FRAME_NONCE_BYTES])[: len(content)])


@pytest.mark.parametrize("change", [_shorter, _flipped, _other])
def test_a_file_that_its_rank_did_not_write_is_not_read(change: Callable[[bytes], bytes], disk: FakeFilesystem) -> None:
    offered = _offer()
    with open(offered.path, "rb") as file:
        content = file.read()
    with open(offered.path, "wb") as file:
        file.write(change(content))
    with pytest.raises(files.WrongContentError):
        files.read(offered, NONCE, time.monotonic())


def test_a_file_of_another_user_is_not_read(disk: FakeFilesystem) -> None:
    offered = _offer()
    os.chown(offered.path, SOMEBODY, -1)
    with pytest.raises(files.WrongContentError, match=f"user {SOMEBODY}"):
        files.read(offered, NONCE, time.monotonic())


def test_a_link_is_not_followed(disk: FakeFilesystem) -> None:
    offered = _offer()
    os.rename(offered.path, "/elsewhere")
    os.symlink("/elsewhere", offered.path)
    with pytest.raises(OSError, match="rankdrill-"):
        files.read(offered, NONCE, time.monotonic())


def test_a_file_that_is_late_is_waited_for(disk: FakeFilesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = _offer()
    os.rename(offered.path, offered.path + ".late")
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            os.rename(offered.path + ".late", offered.path)

    monkeypatch.setattr("time.sleep", nap)
    assert files.read(offered, NONCE, time.monotonic() + 60).load(PICKLED) == PAYLOAD
    assert len(naps) == 3


def test_a_file_that_never_comes_is_given_up_at_the_deadline(
    disk: FakeFilesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = _offer()
    os.unlink(offered.path)
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    with pytest.raises(FileNotFoundError):
        files.read(offered, NONCE, 5.0)
    assert 5.0 <= now[0] < 5.5


# ---------------------------------------------------------------------------------------------- sweeping


def _left_by(disk: FakeFilesystem, owner: Identity, age_s: float = 0) -> str:
    path = files.path_of(BASE, os.urandom(16), owner)
    disk.create_file(path, contents="half of it")
    when = time.time() - age_s
    os.utime(path, (when, when))
    return os.path.basename(path)


def test_what_a_process_left_that_is_gone_is_swept(disk: FakeFilesystem) -> None:
    me = identify()
    gone = 2**22 + 1  # more than any process id
    _left_by(disk, Identity(me.machine, gone, 5))
    _left_by(disk, Identity(me.machine, me.pid, me.started - 1))  # the same id in an earlier life
    _left_by(disk, Identity(me.machine, gone, 7))
    files.sweep(BASE)
    assert os.listdir(BASE) == []


def test_what_is_in_use_or_may_be_or_is_not_ours_is_left_alone(disk: FakeFilesystem) -> None:
    me = identify()
    _run(disk, 77, started=9)
    elsewhere = Identity(me.machine ^ 1, 1, 1)
    kept = {
        _left_by(disk, me),
        _left_by(disk, Identity(me.machine, 77, 9), age_s=2 * DAY_S),
        _left_by(disk, elsewhere, age_s=DAY_S / 2),
    }
    _left_by(disk, elsewhere, age_s=2 * DAY_S)
    gone = Identity(me.machine, 2**22 + 1, 5)
    for path in ("rankdrill-notes", "rankdrill-zz-1-2-3", "results", f"rankdrill-{gone}-file"):
        disk.create_file(os.path.join(BASE, path), contents="precious")
        kept.add(path)
    for path in ("rankdrill-dir", f"rankdrill-{gone}-{NONCE.hex()}"):
        disk.create_dir(os.path.join(BASE, path))
        kept.add(path)
    files.sweep(BASE)
    assert set(os.listdir(BASE)) == kept


def test_a_gather_sweeps_before_it_writes(disk: FakeFilesystem) -> None:
    _left_by(disk, Identity(identify().machine, 2**22 + 1, 5))
    assert _by_gather(1) == 1
    assert os.listdir(BASE) == []


def test_without_proc_nothing_young_is_swept(fs: FakeFilesystem) -> None:
    assert identify().machine == 0
    young = _left_by(fs, Identity(0, 2**22 + 1, 0))
    _left_by(fs, Identity(0, 2**22 + 1, 0), age_s=2 * DAY_S)
    files.sweep(BASE)
    assert os.listdir(BASE) == [young]


def test_sweeping_where_nothing_is_or_may_be_seen_is_fine(disk: FakeFilesystem) -> None:
    files.sweep("/nowhere")
    disk.create_file("/a file")
    files.sweep("/a file")
    assert disk.exists("/a file")


# ---------------------------------------------------------------------------------------------- the default directory


def test_the_default_directory_is_this_users_alone(disk: FakeFilesystem) -> None:
    assert all_gather_via_filesys(PAYLOAD) == [PAYLOAD]
    made = files.default_directory()
    assert os.stat(made).st_mode & 0o777 == 0o700
    assert os.listdir(made) == []


def test_a_default_directory_that_others_can_enter_is_refused(disk: FakeFilesystem) -> None:
    disk.chmod(files.default_directory(), 0o755, force_unix_mode=True)
    told = rf"is not a directory that only this user can enter: drwxr-xr-x of user {os.getuid()}; have it removed, or"
    with pytest.raises(StorageError, match=told):
        all_gather_via_filesys(PAYLOAD)


def test_a_link_in_place_of_the_default_directory_is_refused(disk: FakeFilesystem) -> None:
    path = files.default_directory()
    os.rename(path, "/elsewhere")
    os.symlink("/elsewhere", path)
    with pytest.raises(StorageError, match="is not a directory that only this user can enter"):
        all_gather_via_filesys(PAYLOAD)
    assert os.listdir("/elsewhere") == []
