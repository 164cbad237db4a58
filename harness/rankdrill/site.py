"""The call site: the line of the user's own code that made a call."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Site", "one_call", "outward"]

_INSTALLED = f"{os.sep}site-packages{os.sep}"
# Functions that hand on to others: decorators' by custom, and what Python makes of a comprehension.
_PASS_ON = frozenset(
    {"wrapper", "wrapped", "inner", "decorated", "<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
)


@dataclass(frozen=True, slots=True)
class Site:
    """The line of the user's own code that made a call.

    `via` is torch's public function that was called there, where this is not the step itself:
    ``all_gather_object`` issues an ``all_gather``; or who else, where they called nothing: ``DDP bucket 0``.
    `caller` is the line of the user's that called that function, where one did, with its own caller: of a helper that
    is called from many places it says which.
    `whole` is the same with the lines of libraries that lie between, where there are some: the innermost of all lines,
    the one that called its function, and so on. It is no part of what the site is.
    """

    file: str
    line: int
    function: str
    via: str = ""
    caller: Site | None = None
    whole: Site | None = field(default=None, compare=False, repr=False)

    def __hash__(self) -> int:
        return hash((self.file, self.line, self.function))  # asked at each call: not the caller's too

    @property
    def place(self) -> tuple[str, int]:
        """The line, whatever was called there."""
        return self.file, self.line

    @property
    def lines(self) -> tuple[tuple[str, int], ...]:
        """The line itself, the one that called its function, and so on."""
        return tuple(each.place for each in outward(self))

    @property
    def path(self) -> str:
        """The file as a reader in the current directory would write it."""
        return _short(self.file)

    def __str__(self) -> str:
        told = [each for each in (self._telling_caller, self._elsewhere) if each is not None]
        called = "".join(f", called at {each.path}:{each.line} in {each.function}" for each in dict.fromkeys(told))
        return f"{self.path}:{self.line} in {self.function}{called}"

    @property
    def _elsewhere(self) -> Site | None:
        """The nearest caller in another file: of a framework of the user's own the line that called it."""
        outer = self.caller
        while outer is not None and (outer.file == self.file or outer.function in _PASS_ON):
            outer = outer.caller
        return outer

    @property
    def _telling_caller(self) -> Site | None:
        """The nearest caller that says more than that something was called there."""
        outer = self.caller
        while outer is not None and outer.function in _PASS_ON:
            outer = outer.caller
        return outer


def outward(site: Site | None) -> Iterator[Site]:
    """The line itself, the one that called its function, and so on."""
    outer = site
    while outer is not None:
        yield outer
        outer = outer.caller


def one_call(one: Site | None, other: Site | None) -> bool:
    """Whether both are one call, as far as is told: of what was called from further in fewer callers are."""
    if one is None or other is None:
        return one is other
    pairs = zip(outward(one), outward(other), strict=False)
    return all((mine.place, mine.function) == (theirs.place, theirs.function) for mine, theirs in pairs)


def _short(file: str) -> str:
    """As a reader in the current directory would write it; of what is installed, as it is imported."""
    package = file.rpartition(_INSTALLED)[2]
    if package != file:
        return package
    try:
        here = os.getcwd()
        return file if here == os.sep else file.removeprefix(os.path.join(here, ""))
    except OSError:  # the directory is gone
        return file
