"""Pickling becomes steps, and pickles stay what they are."""

from __future__ import annotations

import copyreg
import io
import pickle
from typing import Any

import cloudpickle
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankdrill.boundary import torch_seam
from tests.faults.here import rank_here

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(VALUES, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_any_value_is_pickled_to_the_same_bytes(value: Any, protocol: int) -> None:
    plain = pickle.dumps(value, protocol)
    with rank_here() as here:
        assert pickle.dumps(value, protocol) == plain
        assert pickle.dumps(value, protocol=protocol, fix_imports=True) == plain
        by_function, by_class = io.BytesIO(), io.BytesIO()
        pickle.dump(value, by_function, protocol)
        pickle.Pickler(by_class, protocol).dump(value)
        assert by_function.getvalue() == by_class.getvalue() == plain
        assert pickle.loads(plain) == value
        assert pickle.load(io.BytesIO(plain)) == value
        assert pickle.Unpickler(io.BytesIO(plain)).load() == value
        assert here.steps == [f"object.{op}" for op in ("dumps", "dumps", "dump", "dump", "loads", "load", "load")]


def test_steps_say_what_type_and_how_much() -> None:
    with rank_here() as here:
        pickle.dumps({"a": 1})
        pickle.dumps(torch.zeros(10))
        pickle.dumps(b"12345")
        pickle.loads(pickle.dumps(1))
        found = [(record.step.target, record.step.nbytes) for record in here.view]
    assert found[:3] == [("dict", 0), ("torch.Tensor", 40), ("bytes", 5)]
    assert found[4] == ("bytes", len(pickle.dumps(1)))


def test_buffers_travel_out_of_band() -> None:
    array = numpy.arange(1000)
    with rank_here():
        buffers: list[pickle.PickleBuffer] = []
        file = io.BytesIO()
        pickle.Pickler(file, 5, buffer_callback=buffers.append).dump(array)
        assert len(buffers) == 1
        assert (pickle.loads(file.getvalue(), buffers=buffers) == array).all()
        assert (pickle.Unpickler(io.BytesIO(file.getvalue()), buffers=buffers).load() == array).all()


class Odd:
    """Pickled only by the tables below."""

    def __reduce__(self) -> str:
        raise TypeError("not this way")


def test_dispatch_tables_persistent_ids_and_subclasses_work() -> None:
    class Registry(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return "the odd one" if isinstance(obj, Odd) else None

    class Loader(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> Any:
            return pid.upper()

    with rank_here() as here:
        file = io.BytesIO()
        pickler = pickle.Pickler(file)
        pickler.dispatch_table = {**copyreg.dispatch_table, Odd: lambda obj: (str, ("odd",))}
        pickler.dump(Odd())
        assert pickle.loads(file.getvalue()) == "odd"

        class Inside(pickle.Pickler):
            def persistent_id(self, obj: Any) -> Any:
                return "the odd one" if isinstance(obj, Odd) else None

        class InsideLoader(pickle.Unpickler):
            def persistent_load(self, pid: Any) -> Any:
                return pid.upper()

        for pickler_type, loader in ((Registry, Loader), (Inside, InsideLoader)):
            file = io.BytesIO()
            pickler_type(file).dump([Odd()])
            assert loader(io.BytesIO(file.getvalue())).load() == ["THE ODD ONE"]
        assert here.steps == ["object.dump", "object.loads", "object.dump", "object.load"]


class EarlyPickler(pickle.Pickler):
    """Made before: its base class goes by another name now, by which it calls that, as dill's do."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pickle.Pickler.__init__(self, *args, **kwargs)

    def dump(self, obj: Any) -> None:
        pickle.Pickler.dump(self, obj)


class EarlyUnpickler(pickle.Unpickler):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pickle.Unpickler.__init__(self, *args, **kwargs)

    def load(self) -> Any:
        return pickle.Unpickler.load(self)


class OddlyMadePickler(pickle.Pickler):
    """It calls only the other one by that name."""

    def dump(self, obj: Any) -> None:
        pickle.Pickler.dump(self, obj)


def test_a_class_derived_before_may_call_its_base_by_name() -> None:
    with rank_here() as here:
        for make in (EarlyPickler, OddlyMadePickler):
            file = io.BytesIO()
            make(file).dump([1, "two"])
            assert EarlyUnpickler(io.BytesIO(file.getvalue())).load() == [1, "two"]
        assert here.steps == ["object.dump", "object.load", "object.load"]


def test_one_pickler_remembers_what_it_has_dumped() -> None:
    shared = ["x" * 100]
    with rank_here():
        file = io.BytesIO()
        pickler = pickle.Pickler(file)
        pickler.dump(shared)
        first = file.tell()
        pickler.dump(shared)
        assert file.tell() - first < 50
        file.seek(0)
        unpickler = pickle.Unpickler(file)
        assert unpickler.load() is unpickler.load()


def test_what_cannot_be_pickled_fails_as_ever() -> None:
    with rank_here() as here:
        with pytest.raises(TypeError, match="not this way"):
            pickle.dumps(Odd())
        with pytest.raises(TypeError, match="must have a 'write' attribute"):
            pickle.Pickler(3)  # type: ignore[arg-type]
        with pytest.raises(EOFError):
            pickle.loads(b"")
        assert [record.error for record in here.view] == ["TypeError", "EOFError"]


def test_torchs_own_picklers_and_cloudpickle_are_seen() -> None:
    from torch.distributed import distributed_c10d as c10d

    with rank_here() as here:
        to_tensor: Any = c10d._object_to_tensor
        to_object: Any = c10d._tensor_to_object
        tensor, size = to_tensor({"a": 1}, torch.device("cpu"), None)
        assert to_object(tensor, size, None) == {"a": 1}
        assert cloudpickle.loads(cloudpickle.dumps(lambda: 3))() == 3
        assert here.steps == ["object.dump", "object.load", "object.dumps", "object.loads"]
        assert {getattr(c10d, name) for name in torch_seam.PICKLER_NAMES} == {pickle.Pickler, pickle.Unpickler}
    assert {getattr(c10d, name) for name in torch_seam.PICKLER_NAMES} == {pickle.Pickler, pickle.Unpickler}


def test_a_step_inside_a_step_is_none() -> None:
    class Nested:
        def __reduce__(self) -> Any:
            return bytes, (pickle.dumps(1),)

    with rank_here() as here:
        pickle.dumps(Nested())
        file = io.BytesIO()
        torch.save({"a": torch.zeros(10_000)}, file)
        assert here.steps == ["object.dumps", "memory.zeros", "object.save"]


def test_an_object_that_will_not_say_its_size_is_a_step_all_the_same() -> None:
    from rankdrill.boundary.sizes import nbytes_of

    sparse = torch.eye(3).to_sparse()
    with pytest.raises(RuntimeError):
        _ = sparse.nbytes
    assert nbytes_of(sparse) == 0
