"""Strikes at what ranks must agree on: shape, dtype, root, reduce op, group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankdrill.faults.steps import COLLECTIVE_OPS
from rankdrill.faults.strike import Argument, Strike, at
from rankdrill.step import Kind

if TYPE_CHECKING:
    from rankdrill.boundary import Call, Proceed

__all__ = ["STRIKES"]
__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test

MAX_ELEMENTS = 1 << 30
_WITH_TENSORS = COLLECTIVE_OPS - {"barrier", "monitored_barrier"}
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
_REDUCING = frozenset(
    {
        "all_reduce",
        "all_reduce_coalesced",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "reduce_scatter_tensor_coalesced",
    }
)


class Mismatch(Strike):
    """The collective is issued with something changed."""

    bends = True
    replaces = True

    def strike(self, call: Call, proceed: Proceed) -> Any:
        from rankdrill.faults.issue import give_back_number, issue

        changed = self.changed(call)
        give_back_number(call)
        return issue(changed, proceed, self.boundary)

    def changed(self, call: Call) -> Call:
        """The call as it is issued."""
        raise NotImplementedError


class _OtherTensors(Mismatch):
    """Issued with other tensors; as much of the result as fits lands in the tensors that were given."""

    def strike(self, call: Call, proceed: Proceed) -> Any:
        from rankdrill.faults.issue import give_back_number, issue, tensors_of
        from rankdrill.faults.works import Chained

        changed = self.changed(call)
        pairs = list(zip(tensors_of(call), tensors_of(changed), strict=True))

        def copy_back() -> None:
            for given, used in pairs:
                given.copy_(used.flatten()[: given.numel()].reshape(given.shape))

        give_back_number(call)
        return Chained([issue(changed, proceed, self.boundary)], copy_back)

    def fits(self, call: Call) -> bool:
        from rankdrill.faults.issue import tensors_of

        tensors = list(tensors_of(call))
        return bool(tensors) and all(tensor.numel() for tensor in tensors)


class WrongShape(_OtherTensors):
    name = "wrong_shape"
    does = "The rank's tensors have that many elements more than the other ranks'."
    seen = "A last batch, a padding that differs: gloo aborts a process (`EnforceNotMet`), NCCL hangs."
    on = at({Kind.COLLECTIVE: _WITH_TENSORS})
    arguments = (Argument("elements", int, 1, MAX_ELEMENTS, "elements", default=1),)

    def changed(self, call: Call) -> Call:
        from rankdrill.faults.issue import DATA, map_tensors, tensors_of

        least = min(tensor.numel() for tensor in tensors_of(call))
        more = int(self.values[0])
        if call.step.op == "all_to_all_single":
            more *= call.args["group"].size()  # it is split evenly

        def larger(tensor: Any) -> Any:
            # Where one tensor holds what all ranks send it must stay as many times as large.
            grown = tensor.new_zeros(tensor.numel() // least * (least + more))
            grown[: tensor.numel()] = tensor.detach().flatten()
            return grown

        return call.with_args(**{name: map_tensors(call.args[name], larger) for name in DATA if name in call.args})


class WrongDtype(_OtherTensors):
    name = "wrong_dtype"
    does = "The rank's tensors have another dtype of the same size: float32 for int32, and the like."
    seen = "A default dtype, an autocast region, a loss that is an int on one rank: gloo returns garbage silently."
    on = at({Kind.COLLECTIVE: _WITH_TENSORS})

    def fits(self, call: Call) -> bool:
        from rankdrill.faults.issue import tensors_of

        return super().fits(call) and all(tensor.dtype in _same_size() for tensor in tensors_of(call))

    def changed(self, call: Call) -> Call:
        from rankdrill.faults.issue import DATA, map_tensors

        other = _same_size()
        return call.with_args(
            **{
                name: map_tensors(call.args[name], lambda tensor: tensor.detach().to(other[tensor.dtype]))
                for name in DATA
                if name in call.args
            }
        )


class WrongOp(Mismatch):
    name = "wrong_op"
    does = "The rank reduces by MAX where it should by SUM, and by SUM where it should by anything else."
    seen = "A mean on one rank and a sum on another: wrong numbers, and no error from any backend."
    on = at({Kind.COLLECTIVE: _REDUCING})

    def changed(self, call: Call) -> Call:
        import torch.distributed as dist

        opts = call.args["opts"]
        asked = getattr(opts, "reduceOp", opts)
        other = dist.ReduceOp.SUM if asked != dist.ReduceOp.SUM else dist.ReduceOp.MAX
        return call.with_args(opts=_copied(opts, reduceOp=dist.ReduceOp(other)) if opts is not asked else other)

    def fits(self, call: Call) -> bool:
        return "opts" in call.args


class WrongRoot(Mismatch):
    name = "wrong_root"
    does = "The rank takes the group rank after the root for the root."
    seen = "A root given as a global where a group rank is wanted: the root returns, others hang or hold stale data."
    on = at({Kind.COLLECTIVE: _ROOTED})

    def fits(self, call: Call) -> bool:
        return "opts" in call.args and call.args["group"].size() > 1

    def changed(self, call: Call) -> Call:
        group, opts = call.args["group"], call.args["opts"]
        root = (opts.rootRank + 1) % group.size()
        changed = call.with_args(opts=_copied(opts, rootRank=root))
        # A gather's list of outputs, a scatter's of inputs, is the root's alone.
        many, one = {"gather": ("outputs", "tensors"), "scatter": ("tensors", "outputs")}.get(call.step.op, ("", ""))
        if not many:
            return changed
        mine = group.rank() == root
        return changed.with_args(**{many: [[call.args[one][0].clone() for _ in range(group.size())]] if mine else []})


class WrongGroup(Mismatch):
    name = "wrong_group"
    does = "The rank issues the collective on another of its process groups."
    seen = "A tensor-parallel collective on the data-parallel group: ranks wait for others that wait elsewhere."
    on = at({Kind.COLLECTIVE: _WITH_TENSORS | {"barrier"}})

    def fits(self, call: Call) -> bool:
        return bool(_other_groups(call))

    def changed(self, call: Call) -> Call:
        return call.with_args(group=_other_groups(call)[0])


def _other_groups(call: Call) -> list[Any]:
    from rankdrill.boundary import torch_seam
    from rankdrill.boundary.collectives import DrilledGroup

    groups = [group for group in torch_seam.groups() if isinstance(group, DrilledGroup)]
    here = call.args["group"]
    # One of the same size first: it goes unnoticed by the checks each rank can make alone.
    return sorted((group for group in groups if group is not here), key=lambda group: group.size() != here.size())


def _copied(opts: Any, **changes: Any) -> Any:
    copy = type(opts)()
    for name in dir(opts):
        if not name.startswith("_") and not callable(getattr(opts, name)):
            setattr(copy, name, getattr(opts, name))
    for name, value in changes.items():
        setattr(copy, name, value)
    return copy


def _same_size() -> dict[Any, Any]:
    import torch

    pairs = [
        (torch.float32, torch.int32),
        (torch.float64, torch.int64),
        (torch.float16, torch.bfloat16),
        (torch.uint8, torch.int8),
    ]
    return {**dict(pairs), **{second: first for first, second in pairs}}


STRIKES: tuple[type[Strike], ...] = (WrongShape, WrongDtype, WrongRoot, WrongOp, WrongGroup)
