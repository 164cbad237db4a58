"""Numpy arrays and scalars: every kind of dtype, every way to lie in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from rankdrill.errors import UsageError
from rankdrill_strategies.arguments import check_count, check_strategy
from rankdrill_strategies.atoms import atoms
from rankdrill_strategies.writing import pasteable

if TYPE_CHECKING:
    import numpy

__all__ = ["arrays"]

_Draw = Callable[[st.SearchStrategy[Any]], Any]

_MAX_TEXT = 4  # characters, of strings of variable width
_SPECIAL = (None, math.nan, math.inf, -math.inf, -0.0)
_DTYPES: tuple[Any, ...] = (
    *("f8", "i8", "?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "f2", "f4", "g", "c8", "c16", "G"),
    *(">i2", ">f4", ">c16", "O", "S0", "S3", "U2", ">U2", "V0", "V3"),
    *("M8[ns]", "M8[D]", ">M8[s]", "m8[us]", "m8[D]"),
    [("a", "<i4"), ("b", ">f8")],
    {"names": ["a", "b"], "formats": ["u1", "i8"], "offsets": [0, 8], "itemsize": 24},  # with padding
    [("point", [("x", "f4"), ("what", "O")]), ("pair", "i2", (2,))],
)


def arrays(
    *,
    dtypes: Sequence[Any] | None = None,
    max_dims: int = 3,
    max_side: int = 3,
    objects: st.SearchStrategy[Any] | None = None,
) -> st.SearchStrategy[Any]:
    """Arrays of random bits: C and Fortran order, views, negative and zero strides, empty; and numpy scalars.

    `dtypes` restricts them, in anything `numpy.dtype` understands; by default they are numbers of either byte
    order, datetimes, strings of fixed and variable width, void, objects, and structures of those. `objects`
    draws the elements of object arrays, by default leaves without parts. Shrinks towards
    zero dimensions, zeros and, where the dtype does not matter, one of few bytes.
    """
    check_count("max_dims", max_dims, at_least=0, at_most=8)
    check_count("max_side", max_side, at_least=1)
    if dtypes is not None and not dtypes:
        raise UsageError(f"dtypes={dtypes!r} leaves nothing to draw; name a dtype, or give None for all")
    elements = check_strategy("objects", atoms() if objects is None else objects)
    return pasteable(st.deferred(lambda: _arrays(_chosen(dtypes), max_dims, max_side, elements)))


def _chosen(dtypes: Sequence[Any] | None) -> list[numpy.dtype[Any]]:
    import numpy

    chosen = [numpy.dtype(dtype) for dtype in (_DTYPES if dtypes is None else dtypes)]
    variable_width = getattr(getattr(numpy, "dtypes", None), "StringDType", None)  # numpy 1.26 has none
    if dtypes is None and variable_width is not None:
        chosen.append(variable_width())
    return chosen


@st.composite
def _arrays(
    draw: _Draw,
    dtypes: list[numpy.dtype[Any]],
    max_dims: int,
    max_side: int,
    objects: st.SearchStrategy[Any],
) -> Any:
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(st.lists(st.integers(0, max_side), max_size=max_dims))
    array = _fill(draw, dtype, math.prod(shape), objects).reshape(shape)
    return draw(st.sampled_from(_LAYOUTS))(array)


def _fill(draw: _Draw, dtype: numpy.dtype[Any], count: int, objects: st.SearchStrategy[Any]) -> Any:
    """A flat array of `count` drawn elements."""
    import numpy

    flat = numpy.zeros(count, dtype)
    if dtype.names is not None:
        for name in dtype.names:
            part = flat[name]  # has further dimensions where the field is itself an array
            part[...] = _fill(draw, part.dtype, part.size, objects).reshape(part.shape)
    elif dtype.kind in "OSUT":
        elements = {"O": objects, "S": st.binary(max_size=dtype.itemsize), "U": _text(surrogates=True)}
        for index in range(count):
            flat[index] = draw(elements.get(dtype.kind, _text(surrogates=False)))
    elif flat.nbytes:
        _fill_bits(draw, flat)
    return flat


def _fill_bits(draw: _Draw, flat: numpy.ndarray[Any, Any]) -> None:
    import numpy

    # An extended precision number has bit patterns that are no number: those come from doubles.
    narrow = {"g": "f8", "G": "c16"}.get(flat.dtype.char, flat.dtype)
    size = flat.size * numpy.dtype(narrow).itemsize
    raw = numpy.frombuffer(draw(st.binary(min_size=size, max_size=size)), numpy.uint8)
    with numpy.errstate(all="ignore"):  # a signalling NaN signals as it is converted
        flat[...] = (raw & 1 if flat.dtype == bool else raw).view(narrow)
    special = draw(st.sampled_from(_SPECIAL)) if flat.dtype.kind in "fc" else None
    if special is not None:
        flat[0] = special


def _text(*, surrogates: bool) -> st.SearchStrategy[str]:
    return st.text(
        st.characters(exclude_categories=()) if surrogates else st.characters(codec="utf-8"), max_size=_MAX_TEXT
    )


# ---------------------------------------------------------------------------------------------- layouts


def _c_order(array: Any) -> Any:
    return array


def _fortran_order(array: Any) -> Any:
    import numpy

    return numpy.asfortranarray(array)


def _transposed(array: Any) -> Any:
    return array.T


def _backwards(array: Any) -> Any:
    return array[(slice(None, None, -1),) * array.ndim]


def _strided(array: Any) -> Any:
    return array[..., ::2] if array.ndim else array


def _window(array: Any) -> Any:
    """A part from the middle of a larger array."""
    return array.reshape(-1)[1:-1]


def _broadcast(array: Any) -> Any:
    """Twice the elements in the same memory, which numpy makes read-only."""
    import numpy

    return numpy.broadcast_to(array, (2, *array.shape))


def _scalar(array: Any) -> Any:
    """The first element, as a numpy scalar (or the object itself)."""
    return array.reshape(-1)[0] if array.size else array


_LAYOUTS = (_c_order, _fortran_order, _transposed, _backwards, _strided, _window, _broadcast, _scalar)
