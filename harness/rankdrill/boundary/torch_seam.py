"""Private APIs of torch, those of modes aside; `tests/boundary/test_torch_seam.py` fails when one changes.

What is used, and why:

- ``distributed_c10d._new_process_group_helper``: every group, default or new, is made here, so wrapping its result
  wraps them all. The public `Backend.register_backend` would rename the backend and cannot wrap explicit
  ``backend="gloo"``.
- ``distributed_c10d._new_group_with_tag``: what ``new_group``, and all that make groups by it, call on members and
  others alike.
- ``distributed_c10d._world`` and the C++ registry (``_register_process_group``): hold the group under its name, for
  functional collectives and DeviceMesh; the wrapper takes the group's place in both.
- ``ProcessGroup._register_backend``, ``_get_backend``, ``_device_types``, ``_set_default_backend``,
  ``_set_group_name``, ``_set_group_desc``: the wrapper carries the wrapped group's backends, which DDP's reducer
  looks up in C++.
- ``Backend.options._timeout``: how long a collective waits before it gives up by itself.
- ``distributed_c10d._pickler``, ``_unpickler``: what the object collectives pickle with.
- ``rendezvous._rendezvous_handlers["env"]``: what ``init_method="env://"`` does; the public way to register a handler
  refuses a scheme that has one.
- ``Backend._set_default_timeout``: for a group that is there already, what ``init_process_group(timeout=…)`` asks for.
- ``torch._tensor_str.PRINT_OPTS``: torch can set its print options, and has no public way to ask for them.
- ``torch.utils._device._device_constructors``: the functions that obey the default device, known by identity; the
  set is made once, when first asked for, and has to be made of torch's own functions.
- ``torch.jit._builtins._get_builtin_table``, from ``id(function)`` to an operator's name: TorchScript knows torch's
  functions by identity, so one that replaces another must be known for the same operator.
- ``autograd.graph._engine_run_backward``: the frame that C++ is called from in a backward pass, known by its code,
  and the name by which ``torch.autograd`` begins one;
  ``torch._C._current_graph_task_id``: which pass it is; ``Variable._execution_engine.queue_callback``: the engine calls
  at the end of a pass, in the order in which it was asked to. ``torch.distributed.Reducer``: what
  DistributedDataParallel makes its reducers with.
- ``_allow_inflight_collective_as_graph_input``: whether work is registered with its tensors, to be waited for there.

What has to do with modes is in `modes_seam`, with batches of messages in `batches_seam`.
The gathers, which work without the rest, have a seam of their own.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from types import CodeType
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c
from torch.autograd import Variable
from torch.autograd import graph as autograd_graph
from torch.distributed import distributed_c10d as c10d

from rankdrill.ledger import DEVICE_BACKENDS

__all__ = [
    "ENGINE",
    "GATHERS_AS_IT_LIES",
    "PICKLER_NAMES",
    "WHERE_PASSES_BEGIN",
    "adopt_backends",
    "at_end_of_backward",
    "backend_on_cpu",
    "backward_pass",
    "c10d",
    "devices_with_queues",
    "goes_on_after_calls",
    "group_names",
    "group_timeout",
    "groups",
    "held_besides_torch",
    "keeps_work",
    "known_to_torchscript",
    "local_group_name",
    "name_of",
    "note_device_constructors",
    "print_options",
    "replace_env_rendezvous",
    "replace_group",
    "set_print_options",
    "set_timeout",
    "stand_around_new_groups",
    "stand_around_reducers",
    "torch_waits_by_tensor",
    "watched",
    "wrap_new_groups",
]

ENGINE: CodeType = autograd_graph._engine_run_backward.__code__
WHERE_PASSES_BEGIN = (torch.autograd, autograd_graph._engine_run_backward.__name__)
"""The module, and the name in it, that all backward passes are begun by."""
PICKLER_NAMES = ("_pickler", "_unpickler")

# gloo's gather sends what lies in memory, whatever the strides say: mended in torch 2.9 (pytorch/pytorch#158903).
GATHERS_AS_IT_LIES = torch.__version__ < "2.9"  # TorchVersion: by number

_BACKEND_TYPES = {
    "gloo": dist.ProcessGroup.BackendType.GLOO,
    "nccl": dist.ProcessGroup.BackendType.NCCL,
    "ucc": dist.ProcessGroup.BackendType.UCC,
    "mpi": dist.ProcessGroup.BackendType.MPI,
}


def wrap_new_groups(wrap: Callable[[Any, tuple[int, ...]], Any]) -> Callable[[], None]:
    """Replace each process group made from now on by `wrap(group, global_ranks)`; returns a function that undoes it."""
    original: Callable[..., Any] = c10d._new_process_group_helper

    def new_process_group(size: int, rank: int, ranks: Sequence[int], *args: Any, **kwargs: Any) -> Any:
        group, store = original(size, rank, ranks, *args, **kwargs)
        if not isinstance(group, dist.ProcessGroup):
            return group, store  # this rank is no member
        wrapped = wrap(group, tuple(ranks) or tuple(range(size)))  # the default group is given no ranks
        if wrapped is not group:
            replace_group(group, wrapped)
        return wrapped, store

    c10d._new_process_group_helper = new_process_group  # type: ignore[assignment]

    def undo() -> None:
        c10d._new_process_group_helper = original

    return undo


def watched() -> bool:
    """Whether the groups of this process are wrapped already."""
    return c10d._new_process_group_helper.__module__ == __name__


def stand_around_new_groups(
    around: Callable[[Sequence[int] | None, bool, Callable[[], Any]], Any],
) -> Callable[[], None]:
    """Have `around(ranks, alone, make)` do each ``new_group``; returns a function that undoes it.

    `alone` says that members alone call it (``use_local_synchronization``).
    """
    original: Callable[..., Any] = c10d._new_group_with_tag
    signature = inspect.signature(original)

    def new_group(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        alone = bool(given.get("use_local_synchronization"))
        return around(given.get("ranks"), alone, functools.partial(original, *args, **kwargs))

    c10d._new_group_with_tag = new_group

    def undo() -> None:
        c10d._new_group_with_tag = original

    return undo


def local_group_name(ranks: Sequence[int]) -> tuple[str, int]:
    """What torch will call the next group that `ranks`, in order, make by themselves, and how many this rank holds.

    The private function counts nothing when it is asked for such a name.
    """
    return str(c10d._process_group_name(list(ranks), use_hashed_name=True)), len(group_names())


def stand_around_reducers(note: Callable[[Any], None]) -> Callable[[], None]:
    """Call `note` with each argument of each reducer that is made; returns a function that undoes it."""
    module: Any = dist
    original = module.Reducer

    @functools.wraps(original, updated=())
    def reducer(*args: Any, **kwargs: Any) -> Any:
        for argument in (*args, *kwargs.values()):
            note(argument)
        return original(*args, **kwargs)

    module.Reducer = reducer

    def undo() -> None:
        module.Reducer = original

    return undo


def backward_pass() -> int:
    """The number of the backward pass that this thread is in; -1 outside of one."""
    return int(torch._C._current_graph_task_id())


def at_end_of_backward(do: Callable[[], None]) -> None:
    """Have `do` done at the end of the backward pass that this thread is in, after what was asked for before."""
    engine: Any = Variable._execution_engine
    engine.queue_callback(do)


def adopt_backends(wrapper: Any, group: Any) -> None:
    """Give `wrapper` the backends, name and description of `group`."""
    default = None
    for device in group._device_types:
        backend = group._get_backend(device)
        kind = _kind_of(backend)
        wrapper._register_backend(device, kind, backend)
        default = default or kind
    if default is not None:
        wrapper._set_default_backend(default)
        wrapper._set_group_name(name_of(group))
        wrapper._set_group_desc(group.group_desc)


def _kind_of(backend: Any) -> Any:
    try:
        name = backend.name()
    except RuntimeError:  # not all have one: torch's own fake one has not, in 2.6
        name = ""
    return _BACKEND_TYPES.get(name, dist.ProcessGroup.BackendType.CUSTOM)


def replace_group(old: Any, new: Any) -> None:
    """Put `new` wherever torch keeps `old`."""
    world = c10d._world
    for table in _tables():
        if old in table:
            table[new] = table.pop(old)
    # No walk through that table: another thread may be making a group, and so adding to it.
    for groups in (world.tags_to_pg.get("", []), world.tags_to_pg.get(world.pg_to_tag.get(new, ""), [])):
        if old in groups:
            groups.append(new)
            groups.remove(old)
    name = new.group_name
    c._unregister_process_group(name)
    c._register_process_group(name, new)


def backend_on_cpu(group: Any) -> str:
    """The name of what moves the tensors of `group` that lie in main memory, ``gloo``; nothing if none can."""
    if not any(device.type == "cpu" for device in group._device_types):
        return ""
    return str(group._get_backend(torch.device("cpu")).name())


def goes_on_after_calls(group: Any) -> bool:
    """Whether all calls of `group` go on, on a device, when they have returned to Python: it has no other backend."""
    try:
        names = [str(group._get_backend(device).name()) for device in group._device_types]
    except RuntimeError:  # somebody's own, which has none
        return False
    return bool(names) and all(name in DEVICE_BACKENDS for name in names)


def devices_with_queues(group: Any) -> frozenset[str]:
    """The types of device, ``cuda``, on which calls of `group` go on when they have returned to Python."""
    try:
        backends = {device.type: str(group._get_backend(device).name()) for device in group._device_types}
    except RuntimeError:
        return frozenset()
    return frozenset(device for device, name in backends.items() if name in DEVICE_BACKENDS)


def group_timeout(group: Any) -> float:
    """Seconds after which the group's collectives give up; 0 where the backend does not say."""
    for device in group._device_types:
        options = getattr(group._get_backend(device), "options", None)
        if options is not None:
            return float(options._timeout.total_seconds())
    return 0.0


@functools.cache
def keeps_work() -> bool:
    """Whether C++ keeps alive what a group written in Python returns to it: torch 2.11 does, and 2.6 does not."""

    class Work(dist.Work):
        pass

    class Group(dist.ProcessGroup):
        def barrier(self, *_: Any, **__: Any) -> dist.Work:
            work = Work()
            self.returned = weakref.ref(work)
            return work

    group: Any = Group(0, 1)  # type: ignore[call-arg]
    held = dist.ProcessGroup.barrier(group, dist.BarrierOptions())  # the method in C++, which asks ours
    return held is not None and group.returned() is not None


def name_of(group: Any) -> str:
    """The name torch gave `group`, also where its backend, written in Python, does not know it."""
    try:
        return str(group.group_name)
    except RuntimeError:
        return str(c10d._world.pg_names[group])


def group_names() -> dict[Any, str]:
    """Every process group this process is in, with the name torch gave it: one written in Python may not know it."""
    return dict(c10d._world.pg_names)


def groups() -> list[Any]:
    """Every process group this process is in, in the order they were made."""
    return list(c10d._world.pg_map)


def held_besides_torch(groups: list[Any], known: Iterable[int] = ()) -> list[int]:
    """How many references there are to each of `groups`, besides those of this list, of torch's tables and `known` ids.

    The caller must hold each by nothing but the list.
    """
    counts = _references(groups)
    by_a_list = _references([object()])[0]  # what looking at one adds is another number in other Pythons
    listed = Counter(id(group) for tagged in c10d._world.tags_to_pg.values() for group in tagged)
    listed.update(known)
    tables = _tables()
    return [
        counts[at] - by_a_list - listed[id(group)] - sum(group in table for table in tables)
        for at, group in enumerate(groups)
    ]


def _references(kept: list[Any]) -> list[int]:
    return [sys.getrefcount(each) for each in kept]


def _tables() -> list[dict[Any, Any]]:
    """Those in which torch keeps groups as keys."""
    world = c10d._world
    return [world.pg_map, world.pg_names, world.pg_backend_config, world.pg_to_tag, world.pg_group_ranks]


def known_to_torchscript(replacement: Any, original: Any) -> None:
    """Let TorchScript compile calls of `replacement` as it does those of `original`."""
    from torch.jit import _builtins

    table = _builtins._get_builtin_table()  # type: ignore[no-untyped-call]
    if id(original) in table:
        table[id(replacement)] = table[id(original)]
        # Another object may have this id one day.
        weakref.finalize(replacement, table.pop, id(replacement), None)


def print_options() -> dict[str, Any]:
    """How tensors are printed: precision, threshold, edgeitems, linewidth, sci_mode."""
    return dict(vars(torch._tensor_str.PRINT_OPTS))


def set_print_options(options: dict[str, Any]) -> None:
    """Print tensors as `print_options` said."""
    torch.set_printoptions(**options)  # type: ignore[no-untyped-call]


def replace_env_rendezvous(make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Let `make(original)` be what ``init_method="env://"`` does: a generator function of (url, timeout, **more)."""
    # Of this name the package shows a function, which hides the module.
    module: Any = importlib.import_module("torch.distributed.rendezvous")
    handlers: dict[str, Callable[..., Any]] = module._rendezvous_handlers
    handlers["env"] = make(handlers["env"])


def set_timeout(group: Any, timeout: timedelta) -> bool:
    """Let the collectives of `group` give up after `timeout`; whether they will.

    gloo takes note and goes on as before where a group has no public way to be told, as of torch 2.6 and 2.8.
    """
    backends = [group._get_backend(device) for device in group._device_types]
    if not hasattr(dist.ProcessGroup, "set_timeout") and any(backend.name() == "gloo" for backend in backends):
        return False
    for backend in backends:
        backend._set_default_timeout(timeout)
    return True


def note_device_constructors() -> None:
    """Have torch note which functions obey the default device, before any of them is replaced."""
    importlib.import_module("torch.utils._device")._device_constructors()


def torch_waits_by_tensor() -> bool:
    """Whether work is to be waited for by ``wait_tensor`` on what it works on, which no handle gets to know of."""
    asked = getattr(c, "_allow_inflight_collective_as_graph_input", None)
    return asked is not None and bool(asked())
