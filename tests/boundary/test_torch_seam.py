"""Every private name of torch that rankdrill rests on is there and means what it must; a failure says what changed."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c
from torch.distributed import distributed_c10d as c10d
from torch.overrides import TorchFunctionMode

from rankdrill.boundary import batches_seam, modes_seam, pipelines_seam, torch_seam
from rankdrill.boundary.torch_seam import known_to_torchscript
from tests.torch_can import Can, can, end_group

WORLD_TIMEOUT_S = 30


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Any]:
    """The default group of a world of one, not wrapped."""
    store = dist.FileStore(str(tmp_path / "store"), 1)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timedelta(seconds=WORLD_TIMEOUT_S))
    yield dist.group.WORLD
    end_group()


def test_groups_are_made_in_one_place() -> None:
    assert list(inspect.signature(c10d._new_process_group_helper).parameters)[:3] == [
        "group_size",
        "group_rank",
        "global_ranks_in_group",
    ]
    assert "_new_process_group_helper(" in inspect.getsource(c10d.init_process_group)
    assert "_new_process_group_helper(" in inspect.getsource(c10d._new_group_with_tag)


def test_new_groups_are_made_through_one_function_on_all_ranks() -> None:
    taken = inspect.signature(c10d._new_group_with_tag).parameters
    assert next(iter(taken)) == "ranks"
    assert taken["use_local_synchronization"].default is False
    assert "_new_group_with_tag(" in inspect.getsource(c10d.new_group)


def test_the_tables_of_groups(group: Any) -> None:
    world = c10d._world
    for table in (world.pg_map, world.pg_names, world.pg_backend_config, world.pg_to_tag, world.pg_group_ranks):
        assert group in table
    assert any(group in groups for groups in world.tags_to_pg.values())
    assert c._resolve_process_group(group.group_name) is not None
    assert callable(c._register_process_group)
    assert callable(c._unregister_process_group)


def test_who_else_holds_a_group(group: Any) -> None:
    dist.new_group([0])
    kept = dist.new_group([0])
    assert torch_seam.held_besides_torch([each for each in c10d._world.pg_map if each is not group]) == [0, 1]
    in_an_object = [kept]
    assert torch_seam.held_besides_torch(in_an_object) == [1]
    assert torch_seam.held_besides_torch(in_an_object, [id(kept)]) == [0]


def test_a_group_made_by_its_members_is_called_what_was_foretold(group: Any) -> None:
    for _ in range(2):
        foretold, held = torch_seam.local_group_name([0])
        made = dist.new_group([0], use_local_synchronization=True)
        assert foretold == made.group_name
        assert torch_seam.local_group_name([0])[1] == held + 1


def test_what_a_group_says_of_itself(group: Any) -> None:
    assert group.group_desc == "default_pg"
    assert isinstance(group.group_name, str)
    assert group._device_types
    for method in ("_register_backend", "_set_default_backend", "_set_group_name", "_set_group_desc"):
        assert callable(getattr(dist.ProcessGroup, method)), method
    backend = group._get_backend(torch.device("cpu"))
    assert backend.name() == "gloo"
    assert torch_seam.group_timeout(group) == WORLD_TIMEOUT_S


def test_gloo_takes_a_timeout_later_or_is_known_not_to(group: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch_seam.set_timeout(group, timedelta(seconds=7)) is can(Can.CHANGE_TIMEOUTS)
    assert torch_seam.group_timeout(group) == (7 if can(Can.CHANGE_TIMEOUTS) else WORLD_TIMEOUT_S)
    monkeypatch.delattr(dist.ProcessGroup, "set_timeout", raising=False)
    before = torch_seam.group_timeout(group)
    assert not torch_seam.set_timeout(group, timedelta(seconds=9))
    assert torch_seam.group_timeout(group) == before


def test_the_picklers_of_object_collectives() -> None:
    assert torch_seam.PICKLER_NAMES == ("_pickler", "_unpickler")
    assert c10d._pickler is pickle.Pickler
    assert c10d._unpickler is pickle.Unpickler
    for function in (c10d._object_to_tensor, c10d._tensor_to_object):
        assert "pickler(" in inspect.getsource(function)


def test_wrapping_new_groups_takes_their_place_everywhere(tmp_path: Path) -> None:
    class Wrapper(dist.ProcessGroup):
        def __init__(self, inner: Any, ranks: tuple[int, ...]) -> None:
            super().__init__(inner.rank(), inner.size())  # type: ignore[call-arg]
            torch_seam.adopt_backends(self, inner)
            self.inner, self.ranks = inner, ranks

    undo = torch_seam.wrap_new_groups(Wrapper)
    try:
        store = dist.FileStore(str(tmp_path / "store"), 1)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        default: Any = dist.group.WORLD
        assert isinstance(default, Wrapper)
        assert default.ranks == (0,)
        assert dist.get_backend(default) == "gloo"
        assert c._resolve_process_group(default.group_name) is default
        assert c10d._get_default_group() is default
        assert isinstance(dist.new_group([0]), Wrapper)
        assert dist.get_process_group_ranks(default) == [0]
        end_group()
    finally:
        undo()
    assert c10d._new_process_group_helper.__module__ == c10d.__name__


def test_torchscript_knows_functions_by_identity() -> None:
    from torch.jit import _builtins

    def replacement() -> None: ...

    known_to_torchscript(replacement, torch.zeros)
    table = _builtins._get_builtin_table()  # type: ignore[no-untyped-call]
    key = id(replacement)
    assert table[key] == "aten::zeros"
    del replacement
    assert key not in table


def test_function_modes_of_a_thread_lie_on_a_stack() -> None:
    class Mode(TorchFunctionMode):
        pass

    ours, theirs = Mode(), Mode()
    torch.set_default_device("cpu")
    try:
        with theirs:
            for _ in range(2):
                modes_seam.lay_function_mode(ours)
            modes = [torch._C._get_function_stack_at(place) for place in range(torch._C._len_torch_function_stack())]
            assert modes == [torch._GLOBAL_DEVICE_CONTEXT.device_context, ours, theirs]
            modes_seam.lift_function_mode(ours)
            assert torch._C._len_torch_function_stack() == 2
    finally:
        torch.set_default_device(None)
    assert torch._C._len_torch_function_stack() == 0
    modes_seam.lift_function_mode(ours)


def test_plainly_no_mode_is_asked() -> None:
    class Refusing(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError(func)

    tensor = torch.ones(1)
    with Refusing(), modes_seam.plainly():
        assert tensor.numel() == 1


def test_a_dispatch_mode_leaves_the_compiler_alone() -> None:
    assert modes_seam.DispatchMode._should_skip_dynamo() is False
    assert modes_seam.DispatchMode.ignore_compile_internals() is True


def test_work_that_is_waited_for_by_its_tensor() -> None:
    from torch.distributed import _functional_collectives as functional

    assert not torch_seam.torch_waits_by_tensor()
    with functional.allow_inflight_collective_as_graph_input_ctx():
        assert torch_seam.torch_waits_by_tensor()


def test_reducers_are_made_under_one_name() -> None:
    assert "dist.Reducer(" in inspect.getsource(torch.nn.parallel.DistributedDataParallel)


def test_a_backward_pass_runs_below_one_function_and_calls_at_its_end() -> None:
    seen: list[Any] = []

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        frame = inspect.currentframe()
        assert frame is not None
        seen.append(frame.f_back is not None and frame.f_back.f_code is torch_seam.ENGINE)
        seen.append(torch_seam.backward_pass() >= 0)
        torch_seam.at_end_of_backward(lambda: torch_seam.at_end_of_backward(lambda: seen.append("last")))
        torch_seam.at_end_of_backward(lambda: seen.append("in turn"))
        return gradient

    leaf = torch.ones(2, requires_grad=True)
    leaf.register_hook(hook)  # type: ignore[no-untyped-call]
    leaf.sum().backward()  # type: ignore[no-untyped-call]
    assert seen == [True, True, "in turn", "last"]
    assert torch_seam.backward_pass() == -1


def test_work_that_is_returned_to_torch_lasts_or_is_known_not_to() -> None:
    """Torch 2.11 and later hold the object itself; of 2.6 it is known that it does not."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    assert torch_seam.keeps_work() or version < (2, 11)
    assert not (torch_seam.keeps_work() and version == (2, 6))


def test_batches_are_joined_as_torch_joins_them(group: Any) -> None:
    """As in `batch_isend_irecv`, which asks for torch's own type of group."""
    source = inspect.getsource(c10d.batch_isend_irecv)
    if batches_seam._asks_for_the_type():
        assert re.search(
            r"type\(group\) (is|==) ProcessGroup and group._get_backend\(device\).supports_coalescing", source
        )
    else:
        assert "type(" not in source
    assert "_coalescing_manager(group, device, async_ops=True)" in source
    assert list(inspect.signature(c10d._coalescing_manager).parameters) == ["group", "device", "async_ops"]
    assert not batches_seam.joins_calls(group, torch.device("cpu")), "gloo cannot"
    assert batches_seam.where_batch_goes([]) == (None, None)
    operation = dist.P2POp(dist.isend, torch.ones(1), 0, group)
    assert batches_seam.where_batch_goes([operation]) == (group, torch.device("cpu"))
    assert batches_seam.where_batch_goes([operation, "no operation"]) == (None, None)


def test_no_group_of_gloo_goes_on_after_its_calls(group: Any) -> None:
    assert not torch_seam.goes_on_after_calls(group)


def test_what_a_pipeline_s_schedule_keeps() -> None:
    from torch import nn
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe, ScheduleInterleaved1F1B, schedules

    steps = {cls.step.__qualname__ for cls in (schedules.PipelineScheduleSingle, schedules.PipelineScheduleMulti)}
    assert steps == pipelines_seam.STEPS
    assert schedules.__name__ == pipelines_seam._SCHEDULES
    group = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=group, rank=0, world_size=1, timeout=timedelta(seconds=WORLD_TIMEOUT_S))
    try:
        stage = PipelineStage(nn.Linear(2, 2), 0, 1, torch.device("cpu"))
        for schedule, count in ((ScheduleGPipe(stage, 3), 3), (ScheduleInterleaved1F1B([stage], 4), 4)):
            pipeline = pipelines_seam._read(schedule)
            assert pipeline is not None
            assert (pipeline.microbatches, pipeline.stages, pipeline.strays) == (count, 1, ())
        stage.group_rank = 1
        assert list(pipelines_seam._strays([stage])) == [(0, 0)]
    finally:
        end_group()
