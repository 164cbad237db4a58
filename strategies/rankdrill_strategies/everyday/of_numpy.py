"""Arrays and numpy's scalars: kinds, layouts, masks, records."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rankdrill_strategies.everyday.table import Table

if TYPE_CHECKING:
    import numpy

__all__ = ["ARRAYS", "SCALARS"]


def _of_numpy(make: Callable[[Any], Any]) -> Callable[[], Any]:
    def made() -> Any:
        import numpy

        return make(numpy)

    return made


def _table(*makers: Callable[[Any], Any]) -> Table:
    return tuple(map(_of_numpy, makers))


def _objects(np: Any) -> numpy.ndarray[Any, Any]:
    array: numpy.ndarray[Any, Any] = np.empty(2, dtype=object)
    array[:] = [None, [1]]
    return array


def _read_only(np: Any) -> Any:
    array = np.arange(3)
    array.flags.writeable = False
    return array


_RECORD = [("a", "<i4"), ("b", "<f8")]

# Those next to each other that the same mistakes lose: a failure shrinks to the first of them.
ARRAYS = _table(
    lambda np: np.zeros(1),
    lambda np: np.array(0.0),
    lambda np: np.array(1),
    lambda np: np.zeros(0),
    lambda np: np.zeros((0, 3)),
    lambda np: np.array([0, 1]),
    lambda np: np.array([1.0, 0.0]),
    lambda np: np.array([0.1], np.float32),
    lambda np: np.array([0.1]),
    lambda np: np.array([True, False]),
    lambda np: np.arange(6).reshape(2, 3),
    lambda np: np.arange(6).reshape(2, 3).T,
    lambda np: np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    lambda np: np.arange(3)[::-1],
    lambda np: np.arange(6)[::2],
    lambda np: np.arange(6)[2:4],
    lambda np: np.broadcast_to(np.arange(2), (3, 2)),
    _objects,
    lambda np: np.array([None]),
    lambda np: np.array(["a", "€€"]),
    lambda np: np.array([b"a", b"b\0c"]),
    lambda np: np.array([1, 2], ">i4"),
    lambda np: np.array(["2024-01-01", "NaT"], "M8[D]"),
    lambda np: np.array([(1, 0.5)], _RECORD),
    lambda np: np.ma.array([1, 2], mask=[False, True]),
    lambda np: np.ma.array([0.5, 1.0], mask=[True, False], fill_value=7.0),
    lambda np: np.array([np.nan, 1.0]),
    _read_only,
    lambda np: np.array([1, 2], np.uint8),
    lambda np: np.array([(1 << 62) + 1]),
    lambda np: np.array([(1 << 64) - 1], np.uint64),
    lambda np: np.array([1, 2], np.int16),
    lambda np: np.array([0.5], np.float16),
    lambda np: np.array([1j]),
    lambda np: np.array([-0.0]),
    lambda np: np.arange(6).reshape(2, 3)[:, 1],
    lambda np: np.array(None),
    lambda np: np.array([1], "m8[ns]"),
    lambda np: np.rec.array([(1, 0.5)], dtype=_RECORD),
    lambda np: np.ma.masked,
    lambda np: np.array([b"\0\1"], "V2"),
    lambda np: np.zeros((1, 1, 1)),
    lambda np: np.zeros(256, np.uint8),
    lambda np: np.arange(1000),
    lambda np: np.zeros(65536, np.uint8),
)

SCALARS = _table(
    lambda np: np.float64(0.5),
    lambda np: np.float32(0.1),
    lambda np: np.int64(1),
    lambda np: np.bool_(True),
    lambda np: np.uint8(255),
    lambda np: np.float16(0.1),
    lambda np: np.complex64(1j),
    lambda np: np.str_("a"),
    lambda np: np.bytes_(b"a"),
    lambda np: np.datetime64("2024-01-01"),
    lambda np: np.datetime64("NaT", "s"),
    lambda np: np.timedelta64(1, "s"),
    lambda np: np.array([(1, 0.5)], _RECORD)[0],
    lambda np: np.dtype("f4"),
    lambda np: np.dtype(_RECORD),
    lambda np: np.float32,
    lambda np: np.random.RandomState(0),
    lambda np: np.random.default_rng(0),
    lambda np: np.random.RandomState(0).get_state(),
    lambda np: {"loss": np.float32(0.1), "step": np.int64(1)},
    lambda np: {np.int64(1): 1},
)
