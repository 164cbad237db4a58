"""Payloads of every kind that callers send, each made anew on every rank."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import re
import types
import uuid
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy
import torch

__all__ = ["PAYLOADS", "TENSORS"]


class Colour(enum.Enum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: float


@dataclasses.dataclass
class Record:
    name: str
    values: list[int]
    tensor: torch.Tensor | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    name: str


class WithState:
    def __init__(self) -> None:
        self.kept, self.lost = 1, object()

    def __getstate__(self) -> dict[str, Any]:
        return {"kept": self.kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class OwnTensor(torch.Tensor):
    pass


def nested(layout: torch.layout) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.arange(2.0), torch.arange(3.0)], layout=layout)


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def itself() -> list[Any]:
    own: list[Any] = [1]
    own.append(own)
    return own


def tied() -> dict[str, Any]:
    weight = torch.ones(3)
    return {"encoder": weight, "decoder": weight}


def marked() -> torch.Tensor:
    tensor: Any = torch.ones(3)
    tensor.mark = "kept"
    return tensor  # type: ignore[no-any-return]


def quantized() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)


LARGE = 40_000  # elements: more than travel with the agreement

TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    **{
        f"tensor of {str(dtype).removeprefix('torch.')}": functools.partial(
            lambda dtype: torch.ones(5).to(dtype), dtype
        )
        for dtype in (
            torch.bool,
            torch.uint8,
            torch.int8,
            torch.int16,
            torch.int32,
            torch.int64,
            torch.float16,
            torch.bfloat16,
            torch.float32,
            torch.float64,
            torch.complex64,
            torch.complex128,
            torch.float8_e4m3fn,
            torch.float8_e5m2,
            torch.uint16,
            torch.uint32,
            torch.uint64,
        )
    },
    "scalar tensor": lambda: torch.tensor(3.5),
    "empty tensor": lambda: torch.empty(0),
    "empty tensor with dimensions": lambda: torch.empty(3, 0, 2),
    "large tensor": lambda: torch.arange(LARGE),
    "transposed": lambda: torch.arange(6.0).reshape(2, 3).t(),
    "large and transposed": lambda: torch.arange(LARGE).reshape(200, 200).t(),
    "permuted": lambda: torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
    "channels last": lambda: torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "expanded": lambda: torch.ones(1).expand(300_000_000),
    "expanded in part": lambda: torch.arange(3.0).reshape(3, 1).expand(3, 4),
    "overlapping windows": lambda: torch.arange(10.0).unfold(0, 4, 1),
    "every third": lambda: torch.arange(10)[::3],
    "one element of a row": lambda: torch.arange(1000.0)[7:8],
    "requires grad": lambda: torch.ones(3, requires_grad=True),
    "conjugated": lambda: torch.ones(2, dtype=torch.complex64).conj(),
    "negated": lambda: torch.ones(2, dtype=torch.complex64).conj().imag,
    "parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "frozen parameter": lambda: torch.nn.Parameter(torch.ones(3), requires_grad=False),
    "buffer": lambda: torch.nn.Buffer(torch.ones(3)),
    "tensor with an attribute": marked,
    "subclass": lambda: torch.ones(3).as_subclass(OwnTensor),
    "sparse COO": lambda: torch.eye(3).to_sparse(),
    "sparse CSR": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": quantized,
    "nested, strided": lambda: nested(torch.strided),
    "nested, jagged": lambda: nested(torch.jagged),
    "on the meta device": lambda: torch.ones(3, device="meta"),
    "inference tensor": lambda: torch.inference_mode()(lambda: torch.ones(3))(),
}

PAYLOADS: dict[str, Callable[[], Any]] = {
    **TENSORS,
    "None": lambda: None,
    "True": lambda: True,
    "integer": lambda: 7,
    "huge integer": lambda: 10**400,
    "negative": lambda: -1,
    "float": lambda: 0.1,
    "infinity": lambda: float("inf"),
    "complex": lambda: 1 + 2j,
    "string": lambda: "text",
    "empty string": lambda: "",
    "surrogate": lambda: "\ud800",
    "emoji": lambda: "\N{GRINNING FACE}" * 3,
    "bytes": lambda: b"\0\xff",
    "large bytes": lambda: bytes(300_000),
    "bytearray": lambda: bytearray(b"abc"),
    "large bytearray": lambda: bytearray(300_000),
    "ellipsis": lambda: ...,
    "not implemented": lambda: NotImplemented,
    "list": lambda: [1, [2, [3]]],
    "list in itself": itself,
    "empty containers": lambda: ([], (), {}, set(), frozenset()),
    "tuple": lambda: (1, "a"),
    "dict": lambda: {1: "a", "b": [2], (3,): None},
    "set": lambda: {1, 2},
    "frozenset": lambda: frozenset({1}),
    "range": lambda: range(3, 9, 2),
    "slice": lambda: slice(1, None, 2),
    "OrderedDict": lambda: collections.OrderedDict(b=1, a=2),
    "defaultdict": lambda: collections.defaultdict(list, a=[1]),
    "Counter": lambda: collections.Counter("aab"),
    "deque": lambda: collections.deque([1, 2], maxlen=3),
    "ChainMap": lambda: collections.ChainMap({"a": 1}),
    "SimpleNamespace": lambda: types.SimpleNamespace(a=1),
    "named tuple": lambda: Point(1, 2.0),
    "dataclass": lambda: Record("a", [1]),
    "dataclass with a tensor": lambda: Record("a", [1], torch.ones(2)),
    "frozen dataclass": lambda: Frozen("a"),
    "object with state": WithState,
    "enum": lambda: Colour.RED,
    "flag": lambda: re.IGNORECASE,
    "class": lambda: Record,
    "function": lambda: itself,
    "built-in function": lambda: len,
    "partial": lambda: functools.partial(int, base=2),
    "exception": lambda: ValueError("no", 1),
    "exception group": lambda: ExceptionGroup("some", [ValueError("no")]),
    "date": lambda: datetime.date(2024, 1, 2),
    "datetime": lambda: datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC),
    "timedelta": lambda: datetime.timedelta(seconds=1.5),
    "Decimal": lambda: decimal.Decimal("1.10"),
    "Fraction": lambda: fractions.Fraction(1, 3),
    "UUID": lambda: uuid.UUID(int=5),
    "path": lambda: pathlib.PurePosixPath("a/b"),
    "pattern": lambda: re.compile("a+"),
    "array": lambda: numpy.arange(5),
    "large array": lambda: numpy.arange(float(LARGE)),
    "array of Fortran's order": lambda: numpy.asfortranarray(numpy.ones((3, 4))),
    "view of an array": lambda: numpy.arange(10)[::3],
    "array of no dimension": lambda: numpy.array(5.0),
    "empty array": lambda: numpy.empty((0, 3)),
    "array of strings": lambda: numpy.array(["a", "bc"]),
    "array of objects": lambda: numpy.array([None, {"a": 1}], dtype=object),
    "array of records": lambda: numpy.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "array of dates": lambda: numpy.array(["2024-01-02"], dtype="M8[D]"),
    "masked array": lambda: numpy.ma.array([1, 2], mask=[False, True]),
    "array that is read only": lambda: read_only(numpy.arange(5)),
    "large array that is read only": lambda: read_only(numpy.arange(float(LARGE))),
    "number of NumPy": lambda: numpy.float32(1.5),
    "dtype of NumPy": lambda: numpy.dtype("f4"),
    "Size": lambda: torch.Size([1, 2]),
    "dtype": lambda: torch.bfloat16,
    "device": lambda: torch.device("cpu", 0),
    "layout": lambda: torch.sparse_coo,
    "memory format": lambda: torch.channels_last,
    "generator's state": lambda: torch.Generator().manual_seed(1).get_state(),
    "tensors in containers": lambda: {"a": [torch.ones(2), (torch.zeros(1),)], "b": torch.arange(LARGE)},
    "one tensor twice": tied,
    "module": lambda: torch.nn.Linear(2, 3),
    "state dict": lambda: torch.nn.Linear(2, 3).state_dict(),
    "packed sequence": lambda: torch.nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)]),
}
