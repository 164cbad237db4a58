"""Which ranks go which way: conditions that a person would have written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

__all__ = ["Ways", "among", "condition", "plain"]


class Ways:
    """Statements of some ranks each, until `told` says them: other ranks' stand below an ``else``."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._said: dict[tuple[int, ...], list[str]] = {}

    def take(self, ranks: tuple[int, ...], said: Sequence[str], *, apart: bool = False) -> bool:
        """Whether what `ranks` do next fits below the conditions so far.

        A third way is taken if it is known that a run of the program takes one of them, `apart`, or ends them.
        """
        if ranks not in self._said and self._said:
            before = [rank for those in self._said for rank in those]
            if not set(before).isdisjoint(ranks) or not (apart or len(before) + len(ranks) == self._size):
                return False
        self._said.setdefault(ranks, []).extend(said)
        return True

    def told(self) -> Iterator[str]:
        """The statements, below their conditions; there are none any more."""
        ways, self._said = list(self._said.items()), {}
        everybody = sum(len(ranks) for ranks, _ in ways) == self._size
        for at, (ranks, said) in enumerate(ways):
            if at and at == len(ways) - 1 and everybody:
                yield "else:"
            else:
                yield f"{'elif' if at else 'if'} {condition(ranks, self._size)}:"
            if all(each.startswith("#") for each in said):
                yield "    pass"
            yield from (f"    {each}" for each in said)


def condition(ranks: Sequence[int], size: int) -> str:
    """That a rank of `size` is one of `ranks`, as short as can be."""
    left = sorted({*range(size)} - {*ranks})
    if not left:
        return "True"
    if len(left) == 1 and size > 2:
        return f"rank.index != {left[0]}"
    return among(ranks) if len(ranks) <= len(left) else f"rank.index not in ({', '.join(map(str, left))})"


def among(ranks: Sequence[int]) -> str:
    """The condition that a rank is one of `ranks`."""
    return f"rank.index == {ranks[0]}" if len(ranks) == 1 else f"rank.index in ({', '.join(map(str, ranks))})"


def plain(text: str) -> str:
    """Text that ends no string and no comment."""
    return "".join(char if char.isprintable() else " " for char in text.replace("\\", "/").replace('"', "'"))
