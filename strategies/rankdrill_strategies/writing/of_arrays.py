"""Arrays and numpy's scalars as code: values, dtype, and how they lie in memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from rankdrill_strategies.kinds import is_masked
from rankdrill_strategies.writing.plain import PLAIN

__all__ = ["is_of_numpy", "write_array"]

_Write = Callable[[Any], str]
_SMALL = 64  # elements that are written out for a view of them


def is_of_numpy(obj: Any) -> bool:
    """Whether `obj` is an array of numpy's own classes, a scalar or a dtype."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and (
        type(obj) is numpy.ndarray or isinstance(obj, (numpy.generic, numpy.dtype)) or is_masked(obj)
    )


def write_array(obj: Any, write: _Write) -> str | None:
    """An array, masked array, scalar or dtype; None for arrays of objects, which may be lists."""
    import numpy

    if isinstance(obj, numpy.dtype):
        return f"numpy.dtype({_dtype(obj)})"
    if obj is numpy.ma.masked:
        return "numpy.ma.masked"
    if obj.dtype.hasobject or obj.dtype.char in "gG":
        return None  # numpy would look into lists for further dimensions; Python has no number of such precision
    if is_masked(obj):
        parts = _laid_out(numpy.ma.getdata(obj), write), write(numpy.ma.getmaskarray(obj).tolist())
        return f"numpy.ma.array({parts[0]}, mask={parts[1]}, fill_value={write(obj.fill_value.item())})"
    if isinstance(obj, numpy.ndarray):
        return _laid_out(obj, write)
    if obj.dtype.kind in "fiub":
        name = "bool_" if obj.dtype == numpy.bool_ else obj.dtype.name  # which numpy 1 has as well
        return f"numpy.{name}({write(obj.item())})"
    if obj.dtype.kind in "Mm" and obj.dtype.isnative:
        unit, count = numpy.datetime_data(obj.dtype)
        if numpy.isnat(obj) and unit != "generic":  # whose unit numpy 1 does not show
            return f"numpy.{type(obj).__name__}('NaT', '{count if count > 1 else ''}{unit}')"
        return repr(obj).replace("np.", "numpy.", 1)
    return f"{_direct(numpy.asarray(obj), write)}[()]"


def _laid_out(array: Any, write: _Write) -> str:
    import numpy

    if not array.size or (array.flags.c_contiguous and _is_whole(array)):
        return _direct(array, write)
    if 0 in array.strides and not array.flags.writeable:
        narrow = array[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides)]
        return f"numpy.broadcast_to({_laid_out(narrow, write)}, {array.shape})"
    if array.ndim > 1 and array.T.flags.c_contiguous and _is_whole(array):
        return f"{_direct(array.T, write)}.T"
    if any(stride < 0 for stride in array.strides):
        steps = ", ".join("::-1" if stride < 0 else ":" for stride in array.strides)
        ahead = array[tuple(slice(None, None, -1 if stride < 0 else None) for stride in array.strides)]
        return f"{_laid_out(ahead, write)}[{steps}]"
    base = array.base
    if array.ndim == 1 and type(base) is numpy.ndarray and base.flags.c_contiguous and base.dtype == array.dtype:
        start = (array.ctypes.data - base.ctypes.data) // array.itemsize
        if base.size <= _SMALL:
            step = array.strides[0] // array.itemsize
            stop = start + (array.size - 1) * step + 1
            flat = base.reshape(-1)
            return f"{_direct(flat, write)}[{start or ''}:{stop}{f':{step}' if step != 1 else ''}]"
    return _direct(array, write)


def _is_whole(array: Any) -> bool:
    return array.base is None or getattr(array.base, "size", array.size) == array.size


def _direct(array: Any, write: _Write) -> str:
    """By its values, in one piece."""
    import numpy

    dtype = (
        ""
        if array.dtype in (numpy.dtype("f8"), numpy.dtype("i8"), numpy.dtype("?"))
        else f", dtype={_dtype(array.dtype)}"
    )
    if not array.nbytes or (array.size >= _SMALL and array.dtype.kind in "fiu" and not array.any()):
        kind = "" if array.dtype == numpy.dtype("f8") else f", dtype={_dtype(array.dtype)}"
        return f"numpy.zeros({array.shape}{kind})"
    if array.size > 3 and array.dtype.kind in "iu" and (array.reshape(-1) == numpy.arange(array.size)).all():
        return f"numpy.arange({array.size}{dtype})" + (f".reshape{array.shape}" if array.ndim != 1 else "")
    if array.dtype.kind in "Mm":
        return f"numpy.array({array.astype('i8').tolist()!r}, dtype='i8').astype({_dtype(array.dtype)})"
    if array.dtype.kind == "V" and array.dtype.names is None:
        return f"numpy.frombuffer({array.tobytes()!r}, dtype={_dtype(array.dtype)}).reshape({array.shape})"
    return f"numpy.array({_values(array.tolist(), write)}{dtype})"


def _values(values: Any, write: _Write) -> str:
    if isinstance(values, list):
        return "[" + ", ".join(_values(value, write) for value in values) + "]"
    return PLAIN[type(values)](values) if type(values) in PLAIN else write(values)


def _dtype(dtype: Any) -> str:
    if dtype.kind == "T":
        return "numpy.dtypes.StringDType()"
    if dtype.names is not None:
        return repr(dtype).removeprefix("dtype(").removesuffix(")")
    return repr(dtype.str if dtype.kind not in "fiu" or not dtype.isnative else dtype.name)
