"""Records of plain data, and how they travel."""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = ["Plain"]


class Plain:
    """A dataclass of plain data: pickled as its class and its fields in order.

    What `dataclasses` itself does for a record with slots looks up its fields at each end, for each record; with
    these a test of a millisecond is told to each rank, and answered by each.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), tuple([getattr(self, name) for name in self.__dataclass_fields__])
