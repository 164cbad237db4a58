"""From the arguments of a collective to its contract: what all ranks must agree on there, and what by twos.

Which sizes must be equal was tried on real gloo and NCCL's documentation: backends count elements and look at no
shape. ``reduce_scatter`` takes chunks of different sizes if all ranks bring the same ones. What ``all_gather``,
``gather``, ``scatter`` and the ``all_to_all`` family move must fit between each two ranks, and need not be even: where
a backend wants it even, as gloo does in most of them, it says so itself on the rank that asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from rankdrill.boundary.announced import Announced
from rankdrill.boundary.strides import MINDING_ORDER, MINDING_ORDER_BY_TWOS, laid_in, orders_of
from rankdrill.step import BY_TWOS, NOBODY, STRIDES, Contract

__all__ = ["MESSAGE", "Terms", "flatten", "message_terms_of", "terms_of"]

MOST_KNOWN = 4096  # contracts remembered: loops make the same calls again and again
MOST_SHOWN = 3  # tensors, and splits, that a reader is shown
REDUCING = frozenset(
    {
        "all_reduce",
        "all_reduce_coalesced",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "reduce_scatter_tensor_coalesced",
    }
)
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
MESSAGE = "message"
"""The op of a contract that a send and its receive have in common."""
Described: TypeAlias = tuple[tuple[torch.dtype, torch.Size], ...]
"""Dtype and shape of each tensor."""
Splits: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""As torch takes them: how the output is split, and how the input; empty where it is split evenly."""

_EVEN: Splits = ((), ())
_RedOpType: Any = dist.ReduceOp.RedOpType


@dataclass(frozen=True, slots=True)
class Terms:
    """What is known of a call by its arguments: its contract, its fingerprint for a reader, the bytes it brings."""

    contract: Contract
    fingerprint: str
    nbytes: int


_known: dict[Any, Terms] = {}


def terms_of(op: str, args: dict[str, Any], rank: int, size: int, devices: Set[str] = frozenset()) -> Terms:
    """What is known of the collective `op`, called by `rank` of a group of `size`.

    Of a group that has a backend of their own for some `devices` the device is a part of it: ``cuda:float32[4]``.
    """
    opts = args.get("opts")
    inputs, outputs = describe(args.get("tensors")), describe(args.get("outputs"))
    reduction = _reduction(opts) if op in REDUCING else None
    # As torch's enum it would be compared and hashed by way of its Python methods.
    reduced: Any = int(reduction) if isinstance(reduction, _RedOpType) else reduction
    root = int(getattr(opts, "rootRank", NOBODY)) if op in ROOTED else NOBODY
    splits = (
        (tuple(args.get("output_splits") or ()), tuple(args.get("input_splits") or ()))
        if op == "all_to_all_single"
        else _EVEN
    )
    differs = _unlike_announced(args.get("group"), splits) if any(splits) else ""
    orders = orders_of(flatten(args.get("tensors")), args.get("group")) if op in MINDING_ORDER else ()
    given, taken = args.get("tensors"), args.get("outputs") if op in MINDING_ORDER_BY_TWOS else ()
    laid = laid_in(op, [*flatten(given)], [*flatten(taken)], args.get("group"), rank, size, root) if taken else ()
    shaped = chain(flatten(given), flatten(taken)) if orders or laid else ()
    strides = tuple([tensor.stride() for tensor in shaped])
    device = _device(devices, args.get("tensors"), args.get("outputs"))
    key = (op, reduced, root, inputs, outputs, splits, rank, size, orders, laid, strides, device, differs)
    found = _known.get(key)
    if found is None:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        reduce_op = _name(reduction)
        contract = _on(device, _made(op, reduce_op, root, inputs, outputs, splits, rank, size))
        if differs:
            contract = replace(contract, shown=f"{contract.shown} {differs}")
        lies = f"{STRIDES}{_shown_strides(strides)}" if orders else ""
        if orders:
            contract = replace(contract, orders=orders, shown=f"{contract.shown}{lies}")
        if laid:
            contract = replace(contract, laid=laid, shown=f"{contract.shown}{STRIDES}{_shown_ends(strides)}")
        rooted = f"root={'?' if root == NOBODY else root}" if op in ROOTED else ""
        parts = (f"{device}{shown(inputs)}{lies}", _shown_splits(splits), differs, reduce_op, rooted)
        found = _known[key] = Terms(contract, " ".join(filter(None, parts)), _nbytes(inputs))
    return found


def message_terms_of(tensors: Any, devices: Set[str] = frozenset()) -> Terms:
    """What a send and its receive must agree on: dtype and count of elements, as backends count them.

    A buffer may be larger in MPI, which says how much came. gloo (torch 2.13) fills its beginning and says nothing;
    where it is smaller the receiving process is ended by SIGABRT.
    """
    described, device = describe(tensors), _device(devices, tensors)
    found = _known.get((device, described))
    if found is None:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        contract = _on(device, _made(MESSAGE, "", NOBODY, described, (), _EVEN, 0, 0))
        found = _known[device, described] = Terms(contract, contract.shown, _nbytes(described))
    return found


def _device(devices: Set[str], *given: Any) -> str:
    """Which of `devices` a call goes to, by its first tensor, as it is put before what is shown of that."""
    first = next(chain.from_iterable(map(flatten, given)), None) if devices else None
    return f"{first.device.type}:" if first is not None and first.device.type in devices else ""


def _on(device: str, contract: Contract) -> Contract:
    if not device or not contract.dtypes:
        return contract
    first, *rest = contract.dtypes
    return replace(contract, dtypes=(f"{device}{first}", *rest), shown=f"{device}{contract.shown}")


def _nbytes(described: Described) -> int:
    return sum(dtype.itemsize * shape.numel() for dtype, shape in described)


def describe(tensors: Any) -> Described:
    """What there is to know of tensors, in however many lists they come."""
    if type(tensors) is list and len(tensors) == 1 and isinstance(tensors[0], torch.Tensor):  # nearly always
        return ((tensors[0].dtype, tensors[0].shape),)
    if isinstance(tensors, torch.Tensor):
        return ((tensors.dtype, tensors.shape),)
    return tuple([(tensor.dtype, tensor.shape) for tensor in flatten(tensors)])


def flatten(tensors: Any) -> Iterator[torch.Tensor]:
    """The tensors in however many lists they come."""
    if isinstance(tensors, torch.Tensor):
        yield tensors
    elif isinstance(tensors, list | tuple):
        for item in tensors:
            yield from flatten(item)


def shown(described: Described) -> str:
    """``float32[2]+int64[3]+7 more``."""
    listed = [
        f"{str(dtype).removeprefix('torch.')}[{','.join(map(str, shape))}]" for dtype, shape in described[:MOST_SHOWN]
    ]
    return "+".join(listed) + (f"+{len(described) - MOST_SHOWN} more" if len(described) > MOST_SHOWN else "")


def _made(
    op: str,
    reduce_op: str,
    root: int,
    inputs: Described,
    outputs: Described,
    splits: Splits,
    rank: int,
    size: int,
) -> Contract:
    described = inputs or outputs
    sizes = tuple(shape.numel() for _, shape in described)
    dtypes = tuple(str(dtype).removeprefix("torch.") for dtype, _ in described)
    told = " ".join(filter(None, (shown(described), _shown_splits(splits))))
    if op not in BY_TWOS:
        return Contract(op, reduce_op, root, dtypes, sizes, shown=told)
    # How many tensors there are is the root's business, or a matter of the size of the group.
    sends, receives = _moved(op, root, inputs, outputs, splits, rank, size)
    kinds = tuple(dict.fromkeys(dtypes))
    alike = set(sends) | set(receives)
    if op not in ("gather", "scatter") and len(alike) == 1:
        return Contract(op, reduce_op, root, kinds, each=alike.pop(), shown=told)
    return Contract(op, reduce_op, root, kinds, sends=sends, receives=receives, shown=told)


def _moved(
    op: str,
    root: int,
    inputs: Described,
    outputs: Described,
    splits: Splits,
    rank: int,
    size: int,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many elements this rank sends to each member, and receives from each; empty where that cannot be told."""
    sent = tuple(shape.numel() for _, shape in inputs)
    received = tuple(shape.numel() for _, shape in outputs)
    match op:
        case "all_gather":
            sends, receives = sent * size, received
        case "gather":
            sends = _at(root, sent, size)
            receives = received if rank == root else (0,) * size
        case "scatter":
            sends = sent if rank == root else (0,) * size
            receives = _at(root, received, size)
        case "all_to_all_single":
            sends = _split(inputs, splits[1], size)
            receives = _split(outputs, splits[0], size)
        case _:
            sends, receives = sent, received
    whole = len(sends) == len(receives) == size
    # A call that is wrong by itself is refused by torch, on its own rank.
    return (sends, receives) if whole else ((), ())


def _at(root: int, sizes: Sequence[int], size: int) -> tuple[int, ...]:
    return tuple(sum(sizes) if member == root else 0 for member in range(size))


def _split(tensors: Described, splits: Sequence[int], size: int) -> tuple[int, ...]:
    if len(tensors) != 1:
        return ()
    shape = tensors[0][1]
    if not splits:  # what cannot be divided fits nobody's even share
        return (-(-shape.numel() // size),) * size
    row = shape.numel() // shape[0] if len(shape) and shape[0] else 1
    return tuple(rows * row for rows in splits)


def _shown_splits(splits: Splits) -> str:
    if not any(splits):
        return ""
    received, sent = (",".join(map(str, each)) or "even" for each in splits)
    return f"sent as {sent} received as {received}"


def _unlike_announced(group: Any, splits: Splits) -> str:
    announced: Announced | None = getattr(group, "announced", None)
    return announced.unlike(splits[1], splits[0]) if announced is not None else ""


def _shown_strides(strides: Sequence[Sequence[int]]) -> str:
    return "+".join(f"({','.join(map(str, each))})" for each in strides[:MOST_SHOWN])


def _shown_ends(strides: Sequence[Sequence[int]]) -> str:
    """``(1,4)+(4,1)+6 more into (4,1)``: what is given, if anything is, and what it is taken into."""
    *given, taken = strides
    if len(set(given)) == 1:
        del given[1:]
    more = f"+{len(given) - MOST_SHOWN} more" if len(given) > MOST_SHOWN else ""
    ends = (f"{_shown_strides(given)}{more}" if given else "", f"into {_shown_strides([taken])}")
    return " ".join(filter(None, ends))


def _reduction(opts: Any) -> Any:
    op = getattr(opts, "reduceOp", opts)
    return getattr(op, "op", op)


def _name(reduction: Any) -> str:
    name = str(reduction)
    return name.rpartition(".")[2].lower() if "RedOp" in name or "ReduceOp" in name else ""
