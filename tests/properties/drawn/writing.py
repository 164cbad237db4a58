"""A drawn program as a file of Python: each call on a line of its own, the mistake as people make it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.properties.drawn.keys_and_collected import lines_of
from tests.properties.drawn.mistakes import LOSSES, OTHERS, How, Mistake
from tests.properties.drawn.programs import (
    Call,
    Collect,
    Exchange,
    Family,
    Key,
    Loop,
    Message,
    Place,
    Program,
    Statement,
)

__all__ = ["Written", "written"]

_HEAD = """import os
import signal

import torch
import torch.distributed as dist


def program(rank, store):""".splitlines()
_INDENT = "    "
_LOSS = {
    How.RAISE: 'raise ValueError("no such sample")',
    How.KILL: "os.kill(os.getpid(), signal.SIGKILL)",
    How.RETURN: "return results",
}


@dataclass(frozen=True)
class Written:
    """The source; in which lines each statement's calls are made, and which lines are those of the mistake."""

    source: str
    lines: dict[Place, frozenset[int]]
    guilty: frozenset[int]


def written(program: Program, mistake: Mistake | None) -> Written:
    """Write `program` down, with `mistake` in it."""
    return _Writer(program, mistake).write()


@dataclass
class _Writer:
    program: Program
    mistake: Mistake | None
    out: list[str] = field(default_factory=lambda: list(_HEAD))
    lines: dict[Place, set[int]] = field(default_factory=dict)
    guilty: set[int] = field(default_factory=set)
    depth: int = 1
    waits: list[tuple[str, str]] = field(default_factory=list)  # what is held: the name of it, and who holds it

    def write(self) -> Written:
        self._say("results = []")
        for number, family in enumerate(self.program.families):
            self._family(number, family)
        for top, statement in enumerate(self.program.block):
            if isinstance(statement, Loop):
                with self._below(f"for step in range({statement.rounds}):"):
                    self._block([(top, inner) for inner in range(len(statement.body))])
            else:
                following = top + 1 < len(self.program.block)
                self._statement((top, 0), last=not following or isinstance(self.program.block[top + 1], Loop))
        self._say("return results")
        return Written(
            "\n".join(self.out) + "\n",
            {place: frozenset(lines) for place, lines in self.lines.items()},
            frozenset(self.guilty),
        )

    # ------------------------------------------------------------------------------------------- lines

    def _say(self, line: str, *, guilty: bool = False) -> None:
        self.out.append(f"{_INDENT * self.depth}{line}")
        if guilty:
            self.guilty.add(len(self.out))
            self.out[-1] += "  # culprit"

    @contextmanager
    def _below(self, line: str, *, guilty: bool = False) -> Iterator[None]:
        self._say(line, guilty=guilty)
        self.depth += 1
        yield
        self.depth -= 1

    def _family(self, number: int, family: Family) -> None:
        if number == 0:
            self._say("g0 = dist.group.WORLD")
            return
        names = [f"g{number}_{place}" for place in range(len(family.parts))]
        for name, part in zip(names, family.parts, strict=True):
            self._say(f"{name} = dist.new_group({list(part)})")
        choices = ", ".join(f"{rank}: {name}" for name, part in zip(names, family.parts, strict=True) for rank in part)
        self._say(f"g{number} = {{{choices}}}.get(rank)")

    # ------------------------------------------------------------------------------------------- statements

    def _block(self, places: list[Place]) -> None:
        for place in places:
            self._statement(place, last=place == places[-1])

    def _statement(self, place: Place, *, last: bool) -> None:
        due, self.waits = self.waits, []
        before = self._mine(place)
        swapped = self.mistake is not None and self.mistake.how is How.SWAP
        if swapped and self.mistake is not None and place == self.program.behind(self.mistake.place):
            pass  # it has been written with the one before
        elif before is None:
            self._plain(place, self.program.at(place))
        else:
            self._with(before, place)
        for name, guard in due + (self.waits if last else []):
            self._wait(name, guard)
        if last:
            self.waits = []

    def _mine(self, place: Place) -> Mistake | None:
        return self.mistake if self.mistake is not None and self.mistake.place == place else None

    def _plain(self, place: Place, statement: Statement, *, guilty: bool = False) -> None:
        if isinstance(statement, Message):
            self._message(place, statement, guilty=guilty)
            return
        if isinstance(statement, Key | Exchange | Collect):
            self._lines(place, statement, None)
            return
        self._guarded(statement.family, lambda: self._call(place, statement, guilty=guilty))
        if statement.held:
            self.waits.append((f"work{place[0]}_{place[1]}", self._guard(statement.family)))

    def _guard(self, family: int) -> str:
        members = self.program.families[family].members
        return "" if len(members) == self.program.ranks else f"if rank in {members}:".replace(",)", ",)")

    def _guarded(self, family: int, body: Callable[[], None]) -> None:
        guard = self._guard(family)
        if not guard:
            body()
            return
        with self._below(guard):
            body()

    def _call(self, place: Place, call: Call, *, guilty: bool = False) -> None:
        name = f"{place[0]}_{place[1]}"
        if call.held:
            self._say(f"buffer{name} = {_tensor(call)}")
            self._made(place, f"work{name} = {self._expression(call, f'buffer{name}')}", guilty=guilty)
        else:
            self._made(place, self._expression(call), guilty=guilty)

    def _made(self, place: Place, line: str, *, guilty: bool = False) -> None:
        self._say(line, guilty=guilty)
        self.lines.setdefault(place, set()).add(len(self.out))

    def _wait(self, name: str, guard: str) -> None:
        mistake = self.mistake
        mine = mistake is not None and name == f"work{mistake.place[0]}_{mistake.place[1]}"
        before = self.depth
        if guard:
            self._say(guard)
            self.depth += 1
        if mine and mistake is not None and mistake.how is How.LEAK:
            self._say(f"if not ({self._odd(mistake)}):", guilty=True)
            self.depth += 1
        if mine and mistake is not None and mistake.how is How.MISSING:
            self._say(f"if {name} is not None:")
            self.depth += 1
        self._say(f"{name}.wait()")
        self.depth = before

    def _message(self, place: Place, message: Message, *, guilty: bool = False) -> None:
        with self._below(f"if rank == {message.source}:"):
            self._made(place, _send(message), guilty=guilty)
        with self._below(f"if rank == {message.target}:"):
            self._made(place, _receive(message), guilty=guilty)

    def _lines(self, place: Place, statement: Key | Exchange | Collect, mistake: Mistake | None) -> None:
        in_a_loop = isinstance(self.program.block[place[0]], Loop)
        odd = self._odd(mistake) if mistake is not None else ""
        outer = self.depth
        for line in lines_of(statement, place, in_a_loop, self.program.ranks, mistake, odd):
            self.depth = outer + line.deep
            (self._made if line.made else self._noted)(place, line.text, guilty=line.guilty)
        self.depth = outer

    def _noted(self, place: Place, line: str, *, guilty: bool = False) -> None:
        self._say(line, guilty=guilty)

    # ------------------------------------------------------------------------------------------- the mistake

    def _odd(self, mistake: Mistake) -> str:
        rank = f"rank == {mistake.rank}"
        return rank if self.program.rounds(mistake.place) == 1 else f"{rank} and step == {mistake.round}"

    def _with(self, mistake: Mistake, place: Place) -> None:
        statement = self.program.at(place)
        if mistake.how in LOSSES:
            with self._below(f"if {self._odd(mistake)}:", guilty=mistake.how is How.RETURN):
                self._say(_LOSS[mistake.how], guilty=True)
            self._plain(place, statement)
        elif mistake.how is How.EXTRA:
            assert isinstance(mistake.other, Call)
            with self._below(f"if {self._odd(mistake)}:", guilty=True):
                self._say(self._expression(mistake.other), guilty=True)
            self._plain(place, statement)
        elif isinstance(statement, Key | Exchange | Collect):
            self._lines(place, statement, mistake)
        elif isinstance(statement, Message):
            self._with_message(mistake, place, statement)
        elif mistake.how is How.LEAK:
            self._plain(place, statement)
            self.guilty |= self.lines[place]
        elif mistake.how is How.HAZARD:
            self._plain(place, statement)
            with self._below(f"if {self._odd(mistake)}:"):
                self._say(f"buffer{place[0]}_{place[1]}.add_(1)", guilty=True)
        elif mistake.how is How.MISSING:
            self._missing(mistake, place, statement)
        elif mistake.how is How.SWAP:
            self._swapped(mistake, place, statement)
        elif mistake.how in OTHERS:
            self._other(mistake, place, statement)

    def _missing(self, mistake: Mistake, place: Place, call: Call) -> None:
        def body() -> None:
            if call.held:
                self._say(f"work{place[0]}_{place[1]} = None")
            with self._below(f"if not ({self._odd(mistake)}):", guilty=True):
                self._call(place, call, guilty=True)

        self._guarded(call.family, body)
        if call.held:
            self.waits.append((f"work{place[0]}_{place[1]}", self._guard(call.family)))

    def _swapped(self, mistake: Mistake, place: Place, first: Call) -> None:
        behind = self.program.behind(place)
        second = self.program.at(behind)
        assert isinstance(second, Call)
        odd = self._odd(mistake)
        if mistake.apart:
            with self._below(f"if {odd}:"):
                self._call(behind, second, guilty=True)
                self._call(place, first, guilty=True)
            with self._below("else:"):
                self._plain(place, first)
                self._plain(behind, second)
            return
        with self._below(f"if {odd}:", guilty=True):
            self._call(behind, second, guilty=True)
        self._plain(place, first, guilty=True)

        def body() -> None:
            with self._below(f"if not ({odd}):"):
                self._call(behind, second)

        self._guarded(second.family, body)

    def _other(self, mistake: Mistake, place: Place, call: Call) -> None:
        other = mistake.other
        assert isinstance(other, Call)
        name = f"buffer{place[0]}_{place[1]}" if call.held else None

        def body() -> None:
            start = f"work{place[0]}_{place[1]} = " if call.held else ""
            if mistake.apart:
                with self._below(f"if {self._odd(mistake)}:"):
                    if name:
                        self._say(f"{name} = {_tensor(other)}")
                    self._made(place, start + self._expression(other, name), guilty=True)
                with self._below("else:"):
                    if name:
                        self._say(f"{name} = {_tensor(call)}")
                    self._made(place, start + self._expression(call, name))
                return
            if name:
                self._say(f"{name} = {_tensor(other)} if {self._odd(mistake)} else {_tensor(call)}")
            one, usual = self._expression(other, name), self._expression(call, name)
            self._made(place, f"{start}{one} if {self._odd(mistake)} else {usual}", guilty=True)

        self._guarded(call.family, body)
        if call.held:
            self.waits.append((f"work{place[0]}_{place[1]}", self._guard(call.family)))

    def _with_message(self, mistake: Mistake, place: Place, message: Message) -> None:
        other = mistake.other
        for rank, say in ((message.source, _send), (message.target, _receive)):
            with self._below(f"if rank == {rank}:"):
                if rank != mistake.rank:
                    self._made(place, say(message))
                elif isinstance(other, Message):
                    with self._below(f"if {self._odd(mistake)}:"):
                        self._made(place, say(other), guilty=True)
                    with self._below("else:"):
                        self._made(place, say(message), guilty=False)
                else:
                    with self._below(f"if not ({self._odd(mistake)}):", guilty=True):
                        self._made(place, say(message), guilty=True)

    # ------------------------------------------------------------------------------------------- one call

    def _expression(self, call: Call, buffer: str | None = None) -> str:
        family = self.program.families[call.family]
        n = _by_rank({rank: len(family.of(rank)) for rank in family.members})
        root = _by_rank({rank: call.root_in(family.of(rank)) for rank in family.members})
        one = _tensor(call)
        mine = buffer or one
        all_of = f"[{one} for _ in range({n})]"
        whole = f"{one}.repeat({n})"
        at_root = f"{all_of} if rank == {root} else None"
        reduce_op = f"op=dist.ReduceOp.{call.reduce_op}"
        arguments = {
            "all_reduce": f"{mine}, {reduce_op}",
            "broadcast": f"{mine}, src={root}",
            "reduce": f"{mine}, dst={root}, {reduce_op}",
            "all_gather": f"{all_of}, {mine}",
            "all_gather_into_tensor": f"{whole}, {mine}",
            "gather": f"{one}, {at_root}, dst={root}",
            "scatter": f"{one}, {at_root}, src={root}",
            "all_to_all_single": f"{whole}, {whole}",
            "reduce_scatter": f"{one}, {all_of}, {reduce_op}",
            "barrier": "",
            "all_gather_object": f"[None] * {n}, rank",
            "broadcast_object_list": f"[rank], src={root}",
            "gather_object": f"rank, [None] * {n} if rank == {root} else None, dst={root}",
        }[call.op]
        held = ", async_op=True" if buffer else ""
        return f"dist.{call.op}({arguments}{', ' if arguments else ''}group=g{call.family}{held})"


def _by_rank(values: dict[int, int]) -> str:
    """An expression for what may be another number on each rank."""
    return str(next(iter(values.values()))) if len(set(values.values())) == 1 else f"{values}[rank]"


def _tensor(call: Call) -> str:
    return f"torch.ones({call.size}, dtype=torch.{call.dtype})"


def _send(message: Message) -> str:
    tensor = f"torch.ones({message.size})"
    if message.requests:
        return f"dist.isend({tensor}, dst={message.target}, tag={message.tag}).wait()"
    return f"dist.send({tensor}, dst={message.target}, tag={message.tag})"


def _receive(message: Message) -> str:
    tensor = f"torch.ones({message.size})"
    if message.requests:
        return f"dist.irecv({tensor}, src={message.source}, tag={message.tag}).wait()"
    return f"dist.recv({tensor}, src={message.source}, tag={message.tag})"
