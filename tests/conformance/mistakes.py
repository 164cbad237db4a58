"""More gathers that are mistaken, of kinds met in the open: each with the question that has to find it."""

from __future__ import annotations

import glob
import io
import os
import pickle
import random
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rankdrill.conformance import Setting
from rankdrill.errors import EncodeError, RankFailure
from tests.conformance.population import Gather, by_torch

__all__ = ["MISTAKES", "Mistake", "each_in_a_directory_of_its_own", "keeps_its_file_where_it_fails"]


@dataclass(frozen=True)
class Mistake:
    """A gather that breaks `promise` where what it is asked has `asked` in its name; `more` is for `conformance`.
    `told` is in what is said of it."""

    gather: Gather
    promise: str
    asked: str
    more: dict[str, Any] = field(default_factory=dict)
    told: str = ""


# ------------------------------------------------------------------------------------- lists in turns


def _in_turns(rank: int, parts: Sequence[list[Any]]) -> Any:
    longest = max(map(len, parts))
    return [part[at] for at in range(longest) for part in parts if at < len(part)]


def as_short_as_the_shortest(items: Any, at: Setting) -> Any:
    return list(chain.from_iterable(zip(*by_torch(items, at), strict=False)))


def without_fillers(items: Any, at: Setting) -> Any:
    parts = by_torch(items, at)
    rows = ([part[n] if n < len(part) else None for part in parts] for n in range(max(map(len, parts))))
    return [item for row in rows for item in row if item is not None]


# ------------------------------------------------------------------------------------- types


def by_weights_only(payload: Any, at: Setting) -> Any:
    buffer = io.BytesIO()
    torch.save(payload, buffer)
    return [torch.load(io.BytesIO(raw)) for raw in by_torch(buffer.getvalue(), at)]


def _rebuilt(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rebuilt(item) for key, item in value.items()}
    return tuple(map(_rebuilt, value)) if isinstance(value, tuple) else value


def as_plain_tuples(payload: Any, at: Setting) -> Any:
    return [_rebuilt(each) for each in by_torch(payload, at)]


def in_sorted_order(payload: Any, at: Setting) -> Any:
    return [dict(sorted(each.items())) for each in by_torch(payload, at)]


def as_long_as_its_letters(payload: Any, at: Setting) -> Any:
    if not isinstance(payload, str):
        return by_torch(payload, at)
    room = max(by_torch(len(payload), at))
    raw = torch.zeros(room, dtype=torch.uint8)
    raw[: len(payload.encode())] = torch.tensor(bytearray(payload.encode()), dtype=torch.uint8)
    return [bytes(each.tolist()).rstrip(b"\0").decode() for each in by_torch(raw, at)]


def with_its_own_keys(payload: Any, at: Setting) -> Any:
    received = by_torch(list(payload.values()), at)
    return [dict(zip(payload, values, strict=False)) for values in received]


def bare_if_alone(payload: Any, at: Setting) -> Any:
    return payload if at.size == 1 else by_torch(payload, at)


def into_slots_of_4_kib(payload: Any, at: Setting) -> Any:
    raw = pickle.dumps(payload)
    if len(raw) > 4096:
        raise ValueError("too large")
    return [pickle.loads(each) for each in by_torch(raw, at)]


# ------------------------------------------------------------------------------------- files


def _exchanged(payload: Any, at: Setting, directory: str, name: str) -> Any:
    Path(directory, f"{name}{at.rank}").write_bytes(pickle.dumps(payload))
    dist.barrier(at.group)
    received = [pickle.loads(Path(directory, f"{name}{rank}").read_bytes()) for rank in range(at.size)]
    dist.barrier(at.group)
    os.unlink(Path(directory, f"{name}{at.rank}"))
    return received


def each_in_a_directory_of_its_own(payload: Any, at: Setting) -> Any:
    return _exchanged(payload, at, tempfile.mkdtemp(), "part-")


def where_it_works(payload: Any, at: Setting) -> Any:
    Path(f"gathered-{at.rank}").write_bytes(pickle.dumps((at.directory, payload)))
    dist.barrier(at.group)
    received = [pickle.loads(Path(f"gathered-{rank}").read_bytes()) for rank in range(at.size)]
    dist.barrier(at.group)
    assert all(each[0] == at.directory for each in received), "another job's"
    return [each[1] for each in received]


def of_a_path_in_a_buffer(payload: Any, at: Setting) -> Any:
    buffer = torch.full((512,), 32, dtype=torch.uint8)
    raw = at.directory.rpartition("/")[0].encode()
    buffer[: len(raw)] = torch.tensor(bytearray(raw), dtype=torch.uint8)
    directory = buffer.numpy().tobytes().decode().rstrip()
    return _exchanged(payload, at, directory, f"{at.turn}-")


def by_a_pattern(payload: Any, at: Setting) -> Any:
    Path(f"{at.directory}/{at.turn}-{at.rank}").write_bytes(pickle.dumps(payload))
    dist.barrier(at.group)
    return [pickle.loads(Path(name).read_bytes()) for name in sorted(glob.glob(f"{at.directory}/{at.turn}-*"))]


def in_the_order_of_a_listing(payload: Any, at: Setting) -> Any:
    name = f"{'-'.join(map(str, at.members))} {at.turn} "
    Path(at.directory, f"{name}{at.rank}").write_bytes(pickle.dumps(payload))
    dist.barrier(at.group)
    found = sorted(each for each in os.listdir(at.directory) if each.startswith(name))
    received = [pickle.loads(Path(at.directory, each).read_bytes()) for each in found]
    dist.barrier(at.group)
    os.unlink(Path(at.directory, f"{name}{at.rank}"))
    return received


def whatever_is_there(payload: Any, at: Setting) -> Any:
    name = Path(at.directory, f"part-{at.turn}-{at.rank}")
    name.write_bytes(pickle.dumps(payload))
    dist.barrier(at.group)
    found = sorted(Path(at.directory).glob(f"part-{at.turn}-*"))
    received = [pickle.loads(each.read_bytes()) for each in found]
    dist.barrier(at.group)
    name.unlink()
    return received


def in_segments_of_one_name(payload: Any, at: Setting) -> Any:
    raw = pickle.dumps(payload)
    own = shared_memory.SharedMemory(f"rankdrill-population-{dist.get_rank()}", create=True, size=len(raw))
    assert own.buf is not None
    own.buf[: len(raw)] = raw
    dist.barrier(at.group)
    received = []
    for rank in at.members:
        its = shared_memory.SharedMemory(f"rankdrill-population-{rank}")
        received.append(pickle.loads(bytes(its.buf or b"")))
        its.close()
    dist.barrier(at.group)
    own.close()
    own.unlink()
    return received


def by_names_in_latin_1(payload: Any, at: Setting) -> Any:
    at.directory.encode("latin-1")
    return _exchanged(payload, at, at.directory, f"{at.turn}-")


def with_temporary_files(payload: Any, at: Setting) -> Any:
    with tempfile.NamedTemporaryFile(delete=False) as log:
        log.write(b"called")
    return by_torch(payload, at)


def with_a_temporary_directory_each_time(payload: Any, at: Setting) -> Any:
    tempfile.mkdtemp()
    return by_torch(payload, at)


def with_directories_for_nothing(payload: Any, at: Setting) -> Any:
    os.makedirs(f"logs/of-{at.rank}", exist_ok=True)
    return by_torch(payload, at)


def told_before_it_is_written(payload: Any, at: Setting) -> Any:
    names = [f"{at.directory}/{'-'.join(map(str, at.members))}-{at.turn}-{rank}" for rank in range(at.size)]
    with open(names[at.rank], "wb") as file:
        file.write(pickle.dumps(payload))
    until = time.monotonic() + at.timeout
    while not all(map(os.path.exists, names)) and time.monotonic() < until:
        time.sleep(0.001)
    return [pickle.loads(Path(name).read_bytes()) for name in names]


def none_for_what_it_cannot_read(payload: Any, at: Setting) -> Any:
    name = f"{at.directory}/{at.turn}-{at.rank}"
    Path(name).write_bytes(pickle.dumps(payload))
    dist.barrier(at.group)

    def read(rank: int) -> Any:
        try:
            return pickle.loads(Path(f"{at.directory}/{at.turn}-{rank}").read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):
            return None

    received = [read(rank) for rank in range(at.size)]
    dist.barrier(at.group)
    os.unlink(name)
    return received


# ------------------------------------------------------------------------------------- stores


def under_one_prefix(payload: Any, at: Setting) -> Any:
    at.store.set(f"of {at.rank}", pickle.dumps(payload))
    return [pickle.loads(at.store.get(f"of {rank}")) for rank in range(at.size)]


def with_another_timeout(payload: Any, at: Setting) -> Any:
    before = at.store.timeout
    at.store.set_timeout(timedelta(seconds=at.timeout))
    at.store.set(f"{at.turn} {at.rank}", pickle.dumps(payload))
    received = [pickle.loads(at.store.get(f"{at.turn} {rank}")) for rank in range(at.size)]
    at.store.set_timeout(before)  # not after an error
    return received


# ------------------------------------------------------------------------------------- buffers, and what is shared


def in_a_buffer_it_keeps(tensor: Any, at: Setting, kept: dict[Any, Any] = {}) -> Any:  # noqa: B006 (the mistake)
    shapes = at.members, tensor.dtype, tensor.shape
    received = kept.setdefault(shapes, [torch.zeros(tensor.shape, dtype=tensor.dtype) for _ in at.members])
    for mine, its in zip(received, by_torch(tensor, at), strict=True):
        mine.copy_(its)
    return received


def its_own_is_the_callers(payload: Any, at: Setting) -> Any:
    received = by_torch(payload, at)
    received[at.rank] = payload
    return received


def in_memory_of_all_ranks(tensor: Any, at: Setting, kept: list[Any] = []) -> Any:  # noqa: B006 (the mistake)
    received = torch.stack(by_torch(tensor.contiguous(), at)).numpy()
    box: list[Any] = [None]
    if at.rank == 0:
        kept.append(shared_memory.SharedMemory(create=True, size=max(received.nbytes, 1)))
        box[0] = kept[-1].name
    dist.broadcast_object_list(box, src=at.members[0], group=at.group)
    if at.rank:
        kept.append(shared_memory.SharedMemory(name=box[0]))
    shared = torch.frombuffer(kept[-1].buf, dtype=tensor.dtype, count=received.size).reshape(received.shape)
    shared.copy_(torch.from_numpy(received))
    dist.barrier(at.group)
    return list(shared)


def adds_up_in_place(tensor: Any, at: Setting) -> Any:
    dist.all_reduce(tensor, group=at.group)
    return tensor.clone()


def in_a_buffer_for_all_groups(payload: Any, at: Setting, kept: dict[str, Any] = {}) -> Any:  # noqa: B006 (the mistake)
    if "all" not in kept or kept["all"].numel() < at.room * at.size:
        kept["all"] = torch.zeros(at.room * at.size, dtype=torch.uint8)
        kept["own"] = torch.zeros(at.room, dtype=torch.uint8)  # stays as it is where a group is smaller
    raw = pickle.dumps(payload)
    kept["own"][: len(raw)] = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    return [pickle.loads(each) for each in by_torch(bytes(kept["own"][: len(raw)].tolist()), at)]


# ------------------------------------------------------------------------------------- surroundings


def salted(payload: Any, at: Setting) -> Any:
    random.randint(0, 2**31)
    return by_torch(payload, at)


_SALTS: list[int] = []


def salted_once(payload: Any, at: Setting) -> Any:
    if not _SALTS:
        _SALTS.append(random.randint(0, 2**31))
    return by_torch(payload, at)


def of_a_new_group(payload: Any, at: Setting) -> Any:
    dist.new_group(list(at.members), use_local_synchronization=True)
    return by_torch(payload, at)


def of_a_group_it_made_once(payload: Any, at: Setting, kept: dict[Any, Any] = {}) -> Any:  # noqa: B006 (it is kept)
    if at.members not in kept:
        kept[at.members] = dist.new_group(list(at.members), use_local_synchronization=True)
    received = [None] * at.size
    dist.all_gather_object(received, payload, group=kept[at.members])
    return received


def at_a_socket_whose_name_it_leaves(payload: Any, at: Setting) -> Any:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(Path(at.directory).parent / f"{at.rank}-{at.turn}"))
    return by_torch(payload, at)


# ------------------------------------------------------------------------------------- failing


def keeps_its_file_where_it_fails(payload: Any, at: Setting) -> Any:
    return _exchanged(payload, at, at.directory, f"{at.turn}-")


def too_large_for_its_slot(payload: Any, at: Setting) -> Any:
    raw = pickle.dumps(payload)
    if len(raw) > at.room:
        raise ValueError("too large")  # alone
    return [pickle.loads(each) for each in by_torch(raw, at)]


def _agreed(own: Any, at: Setting, who: Callable[[int], int]) -> Any:
    received = by_torch(own, at)
    failed = [rank for rank, (fine, _) in enumerate(received) if not fine]
    if failed:
        raise EncodeError("gather", (RankFailure(who(failed[0]), "it could not"),))
    return [pickle.loads(raw) for _, raw in received]


def blames_the_next(payload: Any, at: Setting) -> Any:
    try:
        own = (True, pickle.dumps(payload))
    except Exception:
        own = (False, b"")
    return _agreed(own, at, lambda rank: (rank + 1) % at.size)


def sends_the_error(function: Any, at: Setting) -> Any:
    try:
        own = (True, function())
    except Exception as error:
        own = (False, error)
    received = by_torch(own, at)
    for fine, value in received:
        if not fine:
            raise RuntimeError("one of the ranks failed") from value
    return [value for _, value in received]


MISTAKES = (
    Mistake(
        as_short_as_the_shortest,
        "right",
        "as many items",
        {"takes": "lists", "gives": _in_turns},
        "every entry cut to the shortest",
    ),
    Mistake(
        without_fillers,
        "right",
        "items that are None",
        {"takes": "lists", "gives": _in_turns},
        "the right one without what is None",
    ),
    Mistake(by_weights_only, "right", "sets"),
    Mistake(as_plain_tuples, "right", "tuples"),
    Mistake(as_plain_tuples, "right", "the order of keys"),
    Mistake(in_sorted_order, "right", "the order of keys", {"takes": "dicts"}),
    Mistake(as_long_as_its_letters, "right", "text beyond ASCII"),
    Mistake(with_its_own_keys, "right", "other keys", {"takes": "dicts"}),
    Mistake(bare_if_alone, "right", "alone in the world"),
    Mistake(into_slots_of_4_kib, "right", "4096 bytes"),
    Mistake(into_slots_of_4_kib, "repeatable", "grow and shrink"),
    Mistake(each_in_a_directory_of_its_own, "right", "a small dict"),
    Mistake(where_it_works, "repeatable", "another job"),
    Mistake(where_it_works, "clean", "calls that worked"),
    Mistake(of_a_path_in_a_buffer, "right", "a long path"),
    Mistake(of_a_path_in_a_buffer, "right", "ends in blanks"),
    Mistake(by_a_pattern, "right", "looks like a pattern"),
    Mistake(by_names_in_latin_1, "right", "not ASCII"),
    Mistake(in_the_order_of_a_listing, "right", "more ranks"),
    Mistake(whatever_is_there, "survives", "killed at its last file"),
    Mistake(in_segments_of_one_name, "repeatable", "another job"),
    Mistake(in_segments_of_one_name, "survives", "has left segments"),
    Mistake(told_before_it_is_written, "survives", "has left files"),
    Mistake(with_temporary_files, "clean", "calls that worked"),
    Mistake(with_a_temporary_directory_each_time, "clean", "calls that worked", told="left in the directory for temp"),
    Mistake(
        with_directories_for_nothing,
        "clean",
        "calls that worked",
        told="left in the working directory: logs/of-0/, logs/of-1/",
    ),
    Mistake(told_before_it_is_written, "repeatable", "slow after its first file"),
    Mistake(none_for_what_it_cannot_read, "survives", "loses what it writes"),
    Mistake(none_for_what_it_cannot_read, "survives", "writes half"),
    Mistake(under_one_prefix, "repeatable", "in a row"),
    Mistake(with_another_timeout, "clean", "after a payload that does not pickle"),
    Mistake(in_a_buffer_it_keeps, "repeatable", "in a row", {"takes": "equal tensors"}),
    Mistake(its_own_is_the_callers, "apart", "changed"),
    Mistake(in_memory_of_all_ranks, "apart", "changed", {"takes": "equal tensors"}),
    Mistake(adds_up_in_place, "clean", "calls that worked", {"takes": "equal tensors", "gives": "sum"}),
    Mistake(in_a_buffer_for_all_groups, "groups", "a smaller group"),
    Mistake(salted, "clean", "calls that worked"),
    Mistake(salted_once, "clean", "calls that worked"),
    Mistake(of_a_new_group, "clean", "calls that worked"),
    Mistake(of_a_group_it_made_once, "groups", "a new group of all"),
    Mistake(at_a_socket_whose_name_it_leaves, "clean", "calls that worked"),
    Mistake(keeps_its_file_where_it_fails, "clean", "does not load", {"promises": ("clean", "contained")}),
    Mistake(too_large_for_its_slot, "contained", "beyond the bound", {"room": 16_000}),
    Mistake(blames_the_next, "contained", "does not pickle"),
    Mistake(sends_the_error, "contained", "does not pickle", {"takes": "functions"}),
)
"""Those of the `population` are found by some question of their promise, these by the one that is named."""
