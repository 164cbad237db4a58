"""The source of a drawn program's keys, and of the messages that one rank takes from anybody."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.properties.drawn.mistakes import How, Mistake
from tests.properties.drawn.programs import COLLECTED, Collect, Exchange, Key, Place

__all__ = ["Line", "lines_of"]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the statement, so much further in than that; whether its calls are `made` there, and by mistake."""

    text: str
    deep: int = 0
    made: bool = False
    guilty: bool = False


@dataclass(frozen=True, slots=True)
class _At:
    """Where a statement stands, and what `wrong` is done there, where `odd` holds."""

    place: Place
    in_a_loop: bool
    ranks: int
    wrong: Mistake | None
    odd: str

    def name(self, kind: str, more: str = "") -> str:
        """The text of an f-string."""
        step = "/{step}" if self.in_a_loop else ""
        return f"{kind}{self.place[0]}_{self.place[1]}{step}{more}"

    @property
    def how(self) -> How | None:
        return self.wrong.how if self.wrong is not None else None

    @property
    def tag(self) -> str:
        first = COLLECTED * (1 + self.place[0] * 10 + self.place[1])
        return f"{first} + step" if self.in_a_loop else str(first)


def lines_of(
    statement: Key | Exchange | Collect, place: Place, in_a_loop: bool, ranks: int, wrong: Mistake | None, odd: str
) -> Iterator[Line]:
    """The lines of `statement`, in a program of so many `ranks`, with what is `wrong` with it where `odd` holds."""
    at = _At(place, in_a_loop, ranks, wrong, odd)
    match statement:
        case Key():
            yield from _key(statement, at)
        case Exchange():
            yield from _exchange(at)
        case Collect():
            yield from _collected(statement, at)


def _key(key: Key, at: _At) -> Iterator[Line]:
    name, other = at.name("key"), at.name("other")
    mine = at.wrong is not None and at.wrong.rank == key.source
    yield Line(f"if rank == {key.source}:")
    yield from _set(name, other if mine else name, at if mine else None, deep=1)
    yield Line(f"if rank in {key.targets}:" if len(key.targets) > 1 else f"if rank == {key.targets[0]}:")
    if at.how is How.NAME and not mine:
        yield from _either(f'store.get(f"{other}")', f'store.get(f"{name}")', at, deep=1)
    else:
        yield Line(f'store.get(f"{name}")', 1, made=True)


def _exchange(at: _At) -> Iterator[Line]:
    own, turned = at.name("own", "/{rank}"), at.name("own", f"/{{(rank + 1) % {at.ranks}}}")
    yield from _set(own, turned if at.how is How.TURNED else at.name("other", "/{rank}"), at, deep=0)
    yield Line(f"for other in range({at.ranks}):")
    yield Line(f'store.get(f"{at.name("own", "/{other}")}")', 1, made=True)


def _set(name: str, other: str, at: _At | None, *, deep: int) -> Iterator[Line]:
    usual = f'store.set(f"{name}", "there")'
    if at is None or at.wrong is None:
        yield Line(usual, deep, made=True)
    elif at.wrong.how is How.UNSET:
        yield Line(f"if not ({at.odd}):", deep, guilty=True)
        yield Line(usual, deep + 1, made=True, guilty=True)
    else:
        yield from _either(f'store.set(f"{other}", "there")', usual, at, deep)


def _either(odd: str, usual: str, at: _At, deep: int) -> Iterator[Line]:
    assert at.wrong is not None
    if at.wrong.apart:
        yield Line(f"if {at.odd}:", deep)
        yield Line(odd, deep + 1, made=True, guilty=True)
        yield Line("else:", deep)
        yield Line(usual, deep + 1, made=True)
    else:
        yield Line(f"{odd} if {at.odd} else {usual}", deep, made=True, guilty=True)


def _collected(collect: Collect, at: _At) -> Iterator[Line]:
    """What came is put where its sender says; by mistake it stays in the order in which it came, always or once."""
    yield Line(f"if rank == {collect.root}:")
    if at.how is How.ARRIVAL:
        yield from _in_any_order(collect, at)
    else:
        yield Line("found = {}", 1)
        yield from _received(collect, at)
        yield Line("found[sender] = buffer", 2)
        yield Line("results.append(torch.cat([found[each] for each in sorted(found)]))", 1)
    yield Line("else:")
    send = f"dist.send(torch.full(({collect.size},), float(rank)), dst={collect.root}, tag={at.tag})"
    match at.how:
        case How.UNSENT:
            yield Line(f"if not ({at.odd}):", 1, guilty=True)
            yield Line(send, 2, made=True, guilty=True)
        case How.TAG:
            yield from _either(send.replace("tag=", "tag=50 + "), send, at, deep=1)
        case _:
            yield Line(send, 1, made=True)


def _received(collect: Collect, at: _At) -> Iterator[Line]:
    yield Line(f"for number in range({at.ranks - 1}):", 1)
    yield Line(f"buffer = torch.empty({collect.size})", 2)
    yield Line(f"sender = dist.recv(buffer, tag={at.tag})", 2, made=True, guilty=at.how is How.ARRIVAL)


def _in_any_order(collect: Collect, at: _At) -> Iterator[Line]:
    assert at.wrong is not None
    if at.wrong.apart:
        yield Line("found = {}", 1)
        yield from _received(collect, at)
        yield Line(f"found[number if {at.odd} else sender] = buffer", 2)
        yield Line("results.append(torch.cat([found[each] for each in sorted(found)]))", 1)
    else:
        yield Line("found = []", 1)
        yield from _received(collect, at)
        yield Line("found.append(buffer)", 2)
        yield Line("results.append(torch.cat(found))", 1)
