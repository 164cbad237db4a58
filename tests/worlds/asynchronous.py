"""Programs that do something wrong with asynchronous calls, and the correct ones that resemble them.

The line of the mistake ends in ``# odd``, that of the call that it is about, where it is another one, in ``# issued``.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

__all__ = ["GIVEN_UP", "HAZARDS", "LEAKS", "TWINS", "Body"]

Body = Callable[[int], Any]

LATER_S = 0.3  # after which the others are where they wait


def issue(tensor: torch.Tensor) -> Any:
    """An `all_reduce` of `tensor`, which is called by other code of the user's."""
    return dist.all_reduce(tensor, async_op=True)


def neighbours() -> tuple[int, int]:
    rank, size = dist.get_rank(), dist.get_world_size()
    return (rank + 1) % size, (rank - 1) % size


# ---------------------------------------------------------------------------------------------------- never waited


def forgotten_by_one(odd: int) -> None:
    if dist.get_rank() == odd:
        dist.all_reduce(torch.ones(4), async_op=True)  # odd
    else:
        dist.all_reduce(torch.ones(4), async_op=True).wait()
    dist.barrier()


def forgotten_by_all(odd: int) -> None:
    work = dist.broadcast(torch.ones(4), 0, async_op=True)  # odd
    del work


def forgotten_once_in_a_loop(odd: int) -> None:
    for step in range(60):
        work = dist.all_reduce(torch.ones(4), async_op=True)  # odd
        if dist.get_rank() != odd or step != 50:
            work.wait()


def kept_and_forgotten(odd: int) -> None:
    kept: list[Any] = []
    kept.append(kept)  # so that it outlives the body
    for _ in range(3):
        kept.append(dist.all_reduce(torch.ones(4), async_op=True))  # odd


def a_barrier(odd: int) -> None:
    dist.barrier(async_op=True)  # odd
    dist.all_reduce(torch.ones(1))


def a_gather_into_a_tensor(odd: int) -> None:
    size = dist.get_world_size()
    dist.all_gather_into_tensor(torch.zeros(size), torch.ones(1), async_op=True)  # odd


def a_message_sent(odd: int) -> None:
    to = (odd + 1) % dist.get_world_size()
    work = None
    if dist.get_rank() == odd:
        work = dist.isend(torch.ones(4), to)  # odd
    elif dist.get_rank() == to:
        dist.recv(torch.zeros(4), odd)
    dist.barrier()
    assert (work is not None) is (dist.get_rank() == odd)


def one_of_a_batch(odd: int) -> None:
    to, source = neighbours()
    sent, received = torch.ones(4), torch.zeros(4)
    both = [dist.P2POp(dist.isend, sent, to), dist.P2POp(dist.irecv, received, source)]
    works = dist.batch_isend_irecv(both)  # odd
    for work in works[1:]:
        work.wait()
    if dist.get_rank() != odd:
        works[0].wait()
    dist.barrier()


def read_and_never_waited(odd: int) -> None:
    tensor = torch.ones(4)
    dist.all_reduce(tensor, async_op=True)  # odd
    assert tensor.sum() > 0


LEAKS: dict[Body, bool] = {
    forgotten_by_one: False,
    forgotten_by_all: True,
    forgotten_once_in_a_loop: False,
    kept_and_forgotten: True,
    a_barrier: True,
    a_gather_into_a_tensor: True,
    a_message_sent: False,
    one_of_a_batch: False,
    read_and_never_waited: True,
}
"""Whether it is all ranks that do it."""


def given_up_at_once(odd: int) -> None:
    to = (odd + 1) % dist.get_world_size()
    if dist.get_rank() == odd:
        dist.isend(torch.ones(4), to)  # odd
    elif dist.get_rank() == to:
        time.sleep(LATER_S)
        dist.recv(torch.zeros(4), odd)  # issued
    dist.barrier()


def given_up_at_the_end(odd: int) -> None:
    to = (odd + 1) % dist.get_world_size()
    if dist.get_rank() == odd:
        work = dist.isend(torch.ones(4), to)  # odd
        assert work is not None
    elif dist.get_rank() == to:
        time.sleep(LATER_S)
        dist.recv(torch.zeros(4), odd)  # issued


GIVEN_UP: tuple[Body, ...] = (given_up_at_once, given_up_at_the_end)
"""gloo drops a message whose handle is dropped before the other side has come: that one waits for ever."""


# ---------------------------------------------------------------------------------------------------- touched


def reads_the_result(odd: int) -> None:
    tensor = torch.ones(4)
    work = dist.all_reduce(tensor, async_op=True)  # issued
    total = tensor.sum()  # odd
    work.wait()
    assert total


def lists_the_result(odd: int) -> None:
    tensor = torch.ones(4)
    work = dist.all_reduce(tensor, async_op=True)  # issued
    assert tensor.tolist()  # odd
    work.wait()


def prints_the_result(odd: int) -> None:
    tensor = torch.ones(4)
    work = dist.all_reduce(tensor, async_op=True)  # issued
    print(tensor)  # odd
    work.wait()


def compares_one_element(odd: int) -> None:
    tensor = torch.ones(4)
    work = dist.all_reduce(tensor, async_op=True)  # issued
    view = tensor[2:]
    assert view[0] >= 0  # odd
    work.wait()


def writes_into_the_result(odd: int) -> None:
    tensor = torch.ones(4)
    work = dist.all_reduce(tensor, async_op=True)  # issued
    if dist.get_rank() == odd:
        tensor[1] = 7  # odd
    work.wait()
    dist.barrier()


def computes_into_the_result(odd: int) -> None:
    tensor, other = torch.ones(4), torch.ones(4)
    work = dist.all_reduce(tensor, async_op=True)  # issued
    torch.add(other, other, out=tensor)  # odd
    work.wait()


def overwrites_what_it_sends(odd: int) -> None:
    to, source = neighbours()
    sent, received = torch.ones(4), torch.zeros(4)
    sending = dist.isend(sent, to)  # issued
    receiving = dist.irecv(received, source)
    if dist.get_rank() == odd:
        sent.zero_()  # odd
    assert sending is not None
    assert receiving is not None
    receiving.wait()
    sending.wait()
    dist.barrier()


def reads_what_it_receives(odd: int) -> None:
    to, source = neighbours()
    sent, received = torch.ones(4), torch.zeros(4)
    receiving = dist.irecv(received, source)  # issued
    sending = dist.isend(sent, to)
    if dist.get_rank() == odd:
        received + 1  # odd
    assert sending is not None
    assert receiving is not None
    receiving.wait()
    sending.wait()
    dist.barrier()


def reads_what_is_gathered(odd: int) -> None:
    gathered = [torch.zeros(4) for _ in range(dist.get_world_size())]
    work = dist.all_gather(gathered, torch.ones(4), async_op=True)  # issued
    stacked = torch.stack(gathered)  # odd
    work.wait()
    assert stacked.numel()


def overwrites_its_shard(odd: int) -> None:
    shard, gathered = torch.ones(4), torch.zeros(4 * dist.get_world_size())
    work = dist.all_gather_into_tensor(gathered, shard, async_op=True)  # issued
    shard.fill_(2)  # odd
    work.wait()


def the_root_overwrites(odd: int) -> None:
    tensor = torch.ones(4)
    work = dist.broadcast(tensor, odd, async_op=True)  # issued
    if dist.get_rank() == odd:
        assert tensor.sum() == 4, "what is only sent may be read"
        tensor.add_(1)  # odd
    work.wait()
    dist.barrier()


def accumulates_over_a_reduction(odd: int) -> None:
    layer = torch.nn.Linear(2, 2)
    layer(torch.ones(1, 2)).sum().backward()
    grad = layer.weight.grad
    assert grad is not None
    work = dist.all_reduce(grad, async_op=True)  # issued
    layer(torch.ones(1, 2)).sum().backward()  # odd
    work.wait()


def steps_before_the_reduction(odd: int) -> None:
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(torch.ones(1, 2)).sum().backward()
    works = [dist.all_reduce(weight.grad, async_op=True) for weight in layer.parameters()]  # issued
    optimizer.step()  # odd
    for work in works:
        work.wait()


def clips_what_a_hook_reduces(odd: int) -> None:
    weight, works = torch.ones(4, requires_grad=True), []
    weight.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
        lambda leaf: works.append(dist.all_reduce(leaf.grad, async_op=True))  # issued
    )
    (weight * 2).sum().backward()  # type: ignore[no-untyped-call]
    if dist.get_rank() == odd:
        torch.nn.utils.clip_grad_norm_([weight], 1.0)  # odd
    for work in works:
        work.wait()


def reduces_twice(odd: int) -> None:
    tensor = torch.ones(4)
    first = dist.all_reduce(tensor, async_op=True)  # issued
    dist.all_reduce(tensor)  # odd
    first.wait()


def at_the_50th_iteration(odd: int) -> None:
    tensor = torch.ones(4)
    for step in range(60):
        work = dist.all_reduce(tensor, op=dist.ReduceOp.MAX, async_op=True)  # issued
        if step == 50:
            tensor.mul_(2)  # odd
        work.wait()


class Passing(TorchFunctionMode):
    """A mode of the user's that lets everything pass."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def under_modes_of_its_own(odd: int) -> None:
    tensor = torch.ones(4)
    with Passing():
        work = dist.all_reduce(tensor, async_op=True)  # issued
        with torch.device("cpu"), Passing():
            pass
    tensor.mul_(2)  # odd
    work.wait()


# The part of the call that is touched, and whether it is all ranks that do it.
HAZARDS: dict[Body, tuple[str, bool]] = {
    reads_the_result: ("output", True),
    lists_the_result: ("output", True),
    prints_the_result: ("output", True),
    compares_one_element: ("output", True),
    writes_into_the_result: ("output", False),
    computes_into_the_result: ("output", True),
    overwrites_what_it_sends: ("input", False),
    reads_what_it_receives: ("output", False),
    reads_what_is_gathered: ("output", True),
    overwrites_its_shard: ("input", True),
    the_root_overwrites: ("input", False),
    accumulates_over_a_reduction: ("output", True),
    steps_before_the_reduction: ("output", True),
    clips_what_a_hook_reduces: ("output", False),
    reduces_twice: ("output", True),
    at_the_50th_iteration: ("output", True),
    under_modes_of_its_own: ("output", True),
}


# ---------------------------------------------------------------------------------------------------- correct


def reads_what_it_sends(odd: int) -> Any:
    to, source = neighbours()
    sent, received = torch.ones(4), torch.zeros(4)
    works = [dist.isend(sent, to), dist.irecv(received, source)]
    seen = sent.tolist(), sent.sum().item(), (sent + 1).tolist(), str(sent)
    for work in works:
        assert work is not None
        work.wait()
    return seen, received.tolist()


def reads_its_shard(odd: int) -> Any:
    shard, gathered = torch.ones(2), [torch.zeros(2) for _ in range(dist.get_world_size())]
    work = dist.all_gather(gathered, shard, async_op=True)
    total = float(shard.sum())
    work.wait()
    return total, [each.tolist() for each in gathered]


def looks_at_shapes(odd: int) -> Any:
    tensor = torch.ones(2, 3)
    work = issue(tensor)
    seen = [tensor.shape, tensor.dtype, tensor.numel(), tensor.is_contiguous(), len(tensor), tensor.stride()]
    views = [tensor[0], tensor[:, 1], tensor.view(-1), tensor.detach(), tensor.t(), tensor.reshape(6), tensor.flatten()]
    seen += [tensor.data_ptr() > 0, tensor.untyped_storage().nbytes(), tensor.is_pinned(), tensor.requires_grad]
    like = [torch.zeros_like(tensor), torch.empty_like(tensor).shape, tensor.new_zeros(2), tensor.new_empty(2).shape]
    array = tensor.numpy()
    assert tensor is not None
    work.wait()
    return str(seen), [view.sum().item() for view in views], str(like), array.tolist()


def waits_by_its_future(odd: int) -> Any:
    tensor = torch.ones(4)
    dist.all_reduce(tensor, async_op=True).get_future().wait()
    doubled = torch.ones(4)
    later = issue(doubled).get_future().then(lambda future: future.value()[0].mul_(2))
    later.wait()
    futures = [issue(each).get_future() for each in (tensor, doubled)]
    torch.futures.wait_all(futures)
    return tensor.tolist(), doubled.tolist()


def waits_in_another_thread(odd: int) -> Any:
    tensor = torch.ones(4)
    thread = threading.Thread(target=issue(tensor).wait)
    thread.start()
    thread.join()
    return tensor.tolist()


def waits_for_a_list(odd: int) -> Any:
    tensors = [torch.full((3,), float(number)) for number in range(60)]
    works = [issue(tensor) for tensor in tensors]
    for work in works:
        work.wait()
    return [tensor.tolist() for tensor in tensors]


def polls(odd: int) -> Any:
    tensor = torch.ones(4)
    work = issue(tensor)
    while not work.is_completed():
        time.sleep(0.001)
    return tensor.tolist()


def uses_other_parts(odd: int) -> Any:
    flat = torch.arange(30.0)
    work = issue(flat[10:20])
    flat[:10].mul_(2)
    flat[20:] += 1
    seen = flat[25].item(), flat[:10].sum().item(), flat[20:].tolist()
    work.wait()
    return seen, flat.tolist()


def uses_another_row(odd: int) -> Any:
    """The columns of one tensor lie in between those of another: their rows are apart, not their ranges."""
    table = torch.arange(24.0).reshape(4, 6)
    work = issue(table[1])
    seen = table[2:, 3].sum().item(), table[0::2, :2].tolist(), table[::2].sum().item()
    table[0::2, 1:3].zero_()
    work.wait()
    return seen, table.tolist()


def computes_meanwhile(odd: int) -> Any:
    tensor, layer = torch.ones(4), torch.nn.Linear(4, 4)
    torch.nn.init.ones_(layer.weight)
    work = issue(tensor)
    for _ in range(3):
        layer(torch.ones(2, 4)).sum().backward()
    with torch.no_grad():
        layer.weight -= 0.5 * torch.ones(4, 4)
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, "x")
    dist.all_reduce(torch.ones(2))
    work.wait()
    return tensor.tolist(), layer.weight.tolist(), gathered


def sends_one_thing_to_all(odd: int) -> Any:
    tensor, rank, size = torch.ones(4), dist.get_rank(), dist.get_world_size()
    works = [dist.isend(tensor, to) for to in range(size) if to != rank]
    received = [torch.zeros(4) for _ in range(size - 1)]
    sources = [source for source in range(size) if source != rank]
    works += [dist.irecv(each, source) for each, source in zip(received, sources, strict=True)]
    for work in works:
        assert work is not None
        work.wait()
    return [each.tolist() for each in received]


def gathers_in_place(odd: int) -> Any:
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = torch.zeros(2 * size)
    mine = whole[2 * rank : 2 * rank + 2]
    mine.fill_(3)
    dist.all_gather_into_tensor(whole, mine, async_op=True).wait()
    return whole.tolist()


def leaves_its_modes(odd: int) -> Any:
    tensor = torch.ones(4)
    with Passing(), torch.device("cpu"):
        work = issue(tensor)
        with Passing():
            pass
    with Passing():
        work.wait()
        other = issue(torch.ones(1))
        tensor.mul_(2)
    other.wait()
    return tensor.tolist()


def uses_ddp(odd: int) -> Any:
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    tensor = torch.ones(4)
    for _ in range(2):
        work = issue(tensor)
        model(torch.ones(2, 4)).sum().backward()
        work.wait()
    return [weight.grad.tolist() for weight in model.parameters() if weight.grad is not None], tensor.tolist()


def reduces_in_hooks(odd: int) -> Any:
    """Each gradient as it comes, from within the backward pass, and waited for after it."""
    layer, works = torch.nn.Linear(4, 4), []
    for weight in layer.parameters():
        hook: Any = weight.register_post_accumulate_grad_hook
        hook(lambda weight: works.append(issue(weight.grad)))
    layer(torch.ones(2, 4)).sum().backward()
    for work in works:
        work.wait()
    return [weight.grad.tolist() for weight in layer.parameters() if weight.grad is not None]


def reduces_in_a_communication_hook(odd: int) -> Any:
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))

    def halved(future: Any) -> torch.Tensor:
        tensor: torch.Tensor = future.value()[0]
        return tensor.div_(2)

    model.register_comm_hook(None, lambda _, bucket: issue(bucket.buffer()).get_future().then(halved))
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()
    return [weight.grad.tolist() for weight in model.parameters() if weight.grad is not None]


def exchanges_a_batch(odd: int) -> Any:
    to, source = neighbours()
    received = torch.zeros(4)
    both = [dist.P2POp(dist.isend, torch.ones(4), to), dist.P2POp(dist.irecv, received, source)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    return received.tolist()


def forks_meanwhile(odd: int) -> Any:
    """What a child reads, as a worker of a data loader does, is a copy."""
    tensor = torch.ones(4)
    work = issue(tensor)
    child = os.fork()
    if child == 0:
        try:
            tensor.zero_()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    work.wait()
    return status, tensor.tolist()


def uses_fsdp(odd: int) -> Any:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4, bias=False)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return "done"


def uses_functional_collectives(odd: int) -> Any:
    from torch.distributed import _functional_collectives as functional

    whole = list(range(dist.get_world_size()))
    result = functional.all_reduce(torch.ones(4), "sum", whole)
    waited = functional.all_gather_tensor(torch.ones(2), 0, whole) + 1
    return (result + 1).tolist(), waited.tolist()


def saves_in_the_background(odd: int) -> Any:
    from torch.distributed.checkpoint.state_dict_saver import async_save

    shared = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(shared, 0)
    saving: Any = async_save({"weight": torch.ones(4)}, checkpoint_id=f"{shared[0]}/checkpoint")
    saving.result()
    return "done"


TWINS: tuple[Body, ...] = (
    reads_what_it_sends,
    reads_its_shard,
    looks_at_shapes,
    waits_by_its_future,
    waits_in_another_thread,
    waits_for_a_list,
    polls,
    uses_other_parts,
    uses_another_row,
    computes_meanwhile,
    sends_one_thing_to_all,
    gathers_in_place,
    leaves_its_modes,
    uses_ddp,
    reduces_in_hooks,
    reduces_in_a_communication_hook,
    exchanges_a_batch,
    forks_meanwhile,
    uses_fsdp,
    uses_functional_collectives,
    saves_in_the_background,
)
