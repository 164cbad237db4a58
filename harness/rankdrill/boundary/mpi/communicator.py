"""What rankdrill knows of one communicator on one rank: its members, its label, and which call comes next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rankdrill.boundary.callsites import call_site
from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.messages import Messages
from rankdrill.boundary.mpi.names import REDUCING, ROOTED
from rankdrill.boundary.numbering import Tally, numbering
from rankdrill.ledger import spell_members
from rankdrill.step import (
    ANY_TAG,
    ANYBODY,
    MPI,
    NO_SEQUENCE,
    NOBODY,
    OUTSIDE,
    RECV,
    SEND,
    Contract,
    Kind,
    Message,
    Step,
)

__all__ = ["Communicator", "Communicators"]

WORLD = "COMM_WORLD"
MOST_LABEL = 40  # characters of a label that tell members
MOST_SENT = 1 << 30
"""The number of a send that may take place any number of times: no receive waits for a later one."""
# Of the reduce ops those that have a name.
_OPERATORS = (
    *("MAX", "MIN", "SUM", "PROD", "LAND", "BAND", "LOR", "BOR", "LXOR", "BXOR"),
    *("MAXLOC", "MINLOC", "REPLACE", "NO_OP"),
)


class Communicator:
    """One communicator: `ranks` are its members' ranks in COMM_WORLD, `place` is this rank's in it."""

    def __init__(self, boundary: Boundary, label: str, ranks: tuple[int, ...], place: int) -> None:
        self.boundary = boundary
        self.label = label
        self.ranks = ranks
        self.place = place
        self.key = boundary.name_group(label, ranks)
        self.sequence = numbering()
        # A sum of its own: MPI may end with a message under way that its program never meant to take.
        self.messages = Messages(self.key, ranks, place, Tally())
        self.counts_receives = True
        self._introduced = False

    def introduce(self) -> None:
        """Write its members into the ledger, once, before its first call."""
        if not self._introduced and self.boundary.ledger:
            self._introduced = True
            self.boundary.ledger.introduce_group(self.label, self.ranks)

    def collective(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], operators: dict[int, str]) -> Step:
        """The step that is the collective `name`; takes the next number."""
        root = _argument(args, kwargs, ROOTED[name], "root", 0) if name in ROOTED else NOBODY
        operator = ""
        if name in REDUCING:
            given = _argument(args, kwargs, REDUCING[name], "op", None)
            operator = "SUM" if given is None else operators.get(getattr(given, "handle", 0), "a function")
        root = root if isinstance(root, int) else NOBODY
        told = " ".join([*([operator] if operator else []), *([f"root={root}"] if name in ROOTED else [])])
        contract = Contract(f"{MPI}{name}", operator, root, shown=told)
        return Step(
            Kind.COLLECTIVE,
            contract.op,
            self.label,
            told,
            sequence=self.sequence.take(),
            site=call_site(),
            digest=contract.digest,
            contract=contract,
        )

    def enter(self, step: Step) -> None:
        """Tell the watch, if there is one, that this rank is about to do `step`; may raise."""
        __tracebackhide__ = True
        if self.boundary.watch is not None:
            self.boundary.watch.enter(self.key, self.ranks, self.place, step)

    def take_back(self, step: Step) -> None:
        """A call that raised never met the others': the next one meets them there."""
        self.sequence.give_back(step.sequence)
        if self.boundary.watch is not None:
            self.boundary.watch.retract(self.key, step)

    # Which message a receive takes is decided by order among those of one tag, and a receive may take any tag. All of
    # one pair of ranks are counted in one row here: who waits for the n-th, where fewer have been sent, waits for sure.

    def send(self, name: str, peer: int, tag: int, *, again: bool = False) -> Step:
        """The step that is a send to `peer`, or as many as anybody may wait for."""
        message = self.messages.take(SEND, peer, ANY_TAG)
        return self._message(
            name, SEND, f"to {peer}", tag, Message(message.peer, ANY_TAG, MOST_SENT) if again else message
        )

    def receive(self, name: str, peer: int | None, tag: int, *, blocks: bool) -> Step:
        """The step that is a receive from `peer`; None is anybody."""
        if not blocks:  # it takes its message some time: from here on nobody knows which receive takes which
            self.counts_receives = False
        if peer is None and self.counts_receives:
            message = self.messages.take(RECV, None, ANY_TAG)
        elif self.counts_receives:
            assert peer is not None
            message = self.messages.take(RECV, peer, ANY_TAG)
        else:
            known = self.ranks[peer] if peer is not None and 0 <= peer < len(self.ranks) else OUTSIDE
            message = Message(known if peer is not None else ANYBODY, ANY_TAG, NO_SEQUENCE)
        return self._message(name, RECV, f"from {'any' if peer is None else peer}", tag, message)

    def arrived(self, record: int, peer: int) -> None:
        """The receive of `record`, from anybody, has taken a message of `peer`."""
        if self.counts_receives and self.boundary.ledger:
            self.boundary.ledger.tell_message(record, self.messages.arrived(peer, ANY_TAG))

    def _message(self, name: str, op: str, peer: str, tag: int, message: Message) -> Step:
        told = f"{MPI}{name} {peer}" + (f" tag={tag}" if tag >= 0 else "")
        return Step(Kind.COLLECTIVE, op, self.label, told, site=call_site(), message=message)


def _argument(args: Sequence[Any], kwargs: dict[str, Any], place: int, name: str, default: Any) -> Any:
    return args[place] if len(args) > place else kwargs.get(name, default)


class Communicators:
    """All communicators of this rank that descend from COMM_WORLD, by what MPI knows them by."""

    def __init__(self, boundary: Boundary, mpi: Any) -> None:
        self.boundary = boundary
        self.mpi = mpi
        self.operators = {getattr(mpi, name).handle: name for name in _OPERATORS if hasattr(mpi, name)}
        self._whole = mpi.COMM_WORLD.Get_group()
        world = mpi.COMM_WORLD
        ranks = tuple(range(world.Get_size()))
        self._known = {world.handle: Communicator(boundary, WORLD, ranks, world.Get_rank())}
        self._made: Counter[tuple[str, tuple[int, ...]]] = Counter()

    def of(self, comm: Any) -> Communicator | None:
        """What is known of `comm`."""
        return self._known.get(comm.handle)

    def make(self, comm: Any, name: str) -> None:
        """`comm` has been made by a call of `name`: members count likewise how often they made one together."""
        group = comm.Get_group()
        ranks = tuple(self.mpi.Group.Translate_ranks(group, None, self._whole))
        group.Free()
        self._made[name, ranks] += 1
        members = spell_members(ranks)[0].removeprefix("ranks=")[:MOST_LABEL]
        label = f"{name} {self._made[name, ranks]} of {members}"
        self._known[comm.handle] = Communicator(self.boundary, label, ranks, comm.Get_rank())

    def forget(self, comm: Any) -> None:
        """`comm` is about to be freed: another may be given its number."""
        self._known.pop(comm.handle, None)
