"""Whether the ranks that are left can only wait for ever: certain long before any deadline."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace

from rankdrill.diagnosis import Position, Wait, doomed, waits
from rankdrill.diagnosis.held_locks import held_locks
from rankdrill.diagnosis.stores.cause import apart
from rankdrill.diagnosis.stores.keys import awaits_key, awaits_meeting
from rankdrill.ledger import Record
from rankdrill.motion import is_stopped, seconds_wanted, wants_processor
from rankdrill.step import MAKES_GROUP, NO_SEQUENCE
from rankdrill.worlds.dumps import threads_in
from rankdrill.worlds.processes.client import RankHandle
from rankdrill.worlds.processes.watching.asleep import Sleepers
from rankdrill.worlds.processes.watching.outside import others_may_act
from rankdrill.worlds.processes.watching.positions import Positions
from rankdrill.worlds.processes.watching.stacks import count_threads

__all__ = ["Certainty"]

SPIN_S = 3.0
"""After which ranks that are in one call, and under a plan differ in what it moves, move nothing but gloo's thread."""
OPEN_S = 1.0  # for which those that still run may show which of the others is at fault
STALL_S = 2.0  # for which all may be in one collective, and none moves, before that is a hang
STALL_MOVING_S = 12.0  # the same where some move all the time, as gloo's thread does that has half a message in hand
ASK_AGAIN_S = 0.5  # after which a rank whose other thread may act is asked for its stacks once more
MORE = 4  # times as long until it is asked again
IDLE_SHARE = 0.1  # of the time between two looks; a rank that ran for less than this did nothing but wait


class Certainty:
    """Looks at the ranks again and again.

    `suspects` says that the last look found only ranks that wait for ever. `stacks` asks ranks for their stacks; it
    is called last, when everything else is certain. `ranks` are all of them, also those that have come to their end, of
    which some are still `at_work`, in a thread that is no daemon.
    """

    def __init__(
        self,
        positions: Positions,
        stacks: Callable[[Collection[RankHandle]], Mapping[int, str]],
        ranks: Sequence[RankHandle],
        at_work: Container[int] = (),
    ) -> None:
        self._positions = positions
        self._ranks = ranks
        self._at_work = at_work
        self._stacks = stacks
        self._suspected: dict[int, int] = {}
        self._acquitted: dict[int, int] = {}
        self._left_alone: dict[int, int] = {}  # as `_acquitted`, and whoever might have acted is gone
        self._ask_again, self._ask_after = 0.0, ASK_AGAIN_S
        self._since = 0.0  # on the monotonic clock: who is suspected has been since then
        self._open: dict[int, int] = {}
        self._open_since = 0.0
        self._ran: dict[int, float] = {}
        self._looked = 0.0
        self._stalled: dict[int, int] = {}
        self._stalled_since = self._stalled_begun = 0.0
        self._sleepers = Sleepers(stacks)
        self._joining: frozenset[int] = frozenset()  # ranks that wait for those of their threads that wait for keys
        self.asleep: frozenset[int] = frozenset()
        """The ranks that will never do anything again, though they are in no step, where that is why it is certain."""

    @property
    def suspects(self) -> bool:
        return bool(self._suspected)

    def hangs(self, running: Mapping[int, RankHandle], deadline: float) -> bool:
        """Whether ranks can only wait for ever, seen in the same steps, idle, twice in a row.

        Others may still run: nothing that they do changes it. Where it is open who is at fault they are left to for a
        while, to show what they do; and under a plan: that is what is tested.
        `deadline` is on the monotonic clock: who gives up by itself before it is left to do so.
        """
        if self.only_stopped(running):
            return True
        positions = self._positions.now(running)
        bent = self._positions.bent()
        waiting = doomed(positions, bent=bent)
        # A rank that the plan stopped will do nothing more, and need not.
        pending = {rank: handle for rank, handle in running.items() if not self._positions.stopped(rank)}
        # Of those that have ended a device may be held up.
        here = {rank: wait for rank, wait in waiting.items() if rank in running}
        stuck = {rank: wait.record.index for rank, wait in here.items() if not _gives_up(wait.record, deadline)}
        whom = here if self._is_settled(stuck, waiting.values(), running) else pending
        if not stuck or stuck.keys() != whom.keys() or self._is_acquitted(stuck):
            self._suspected = {}
            asleep = self._all_but_sleepers_wait(running, positions, deadline)
            return asleep or self._are_stalled(running, positions)
        # gloo's own thread spins for ever once a message is dropped (2.13). Whoever is half way through a transfer with
        # that rank moves too.
        # Who waits for a key, as one does for the others' when a group is made, may ask for it again and again; who
        # has set it, or has come to make the group, has written that down. MPI's ranks spin while they wait, and so
        # does who waits for a device.
        idle = {rank: running[rank] for rank in stuck if not self._may_move(positions[rank])}
        moved = self._moved(idle)
        if stuck != self._suspected:
            self._since = time.monotonic()
        spins = bool(bent) and time.monotonic() - self._since > SPIN_S and _differ(positions, waiting)
        # What was bent may be answered by one that has ended, whose backend goes on.
        may_move = [handle for handle in self._ranks if handle.death is None] if bent else idle.values()
        still = spins or (not moved and not _any_wants_processor(may_move))
        certain = stuck == self._suspected and still
        self._suspected = stuck
        # Who waits for a device waits for ranks that have ended, whatever its other threads do.
        may = {rank: running[rank] for rank in stuck if not positions[rank].halted}
        if certain and may and self._another_may_act(may, waiting.values(), running):
            self._acquit(stuck)
            return False
        if certain and self._were_not_alone(stuck):
            return False
        return certain and self._are_still_stuck(stuck, running)

    def _were_not_alone(self, stuck: dict[int, int]) -> bool:
        """Whether somebody was there at the look before who might have done something, a child, say, of which no ledger
        tells. They are left time to find out what it did: who waits for a key asks again and again.
        """
        if stuck != self._acquitted:
            return False
        self._acquitted, self._left_alone, self._ask_again = {}, stuck, time.monotonic() + ASK_AGAIN_S
        return True

    def _are_still_stuck(self, stuck: Mapping[int, int], running: Container[int]) -> bool:
        """Whether they are in those steps for ever still, now that their stacks have been seen: a thread that was not
        there any more may have ended meanwhile, and have done before that what they wait for.
        """
        waiting = doomed(self._positions.now(running), bent=self._positions.bent())
        return all(rank in waiting and waiting[rank].record.index == index for rank, index in stuck.items())

    def _is_settled(self, stuck: dict[int, int], waits: Collection[Wait], running: Container[int]) -> bool:
        """Whether nothing is to be learnt any more from those that still run."""
        if self._positions.planned:
            return False
        if stuck != self._open:
            self._open, self._open_since = stuck, time.monotonic()
        return _decided(waits, running) or time.monotonic() - self._open_since > OPEN_S

    def _acquit(self, stuck: dict[int, int]) -> None:
        if stuck != self._acquitted:
            self._ask_after = ASK_AGAIN_S
        self._acquitted, self._ask_again = stuck, time.monotonic() + self._ask_after
        self._ask_after *= MORE

    def _is_acquitted(self, stuck: dict[int, int]) -> bool:
        """For a while: the thread that might have done something may be in the way of others by then."""
        return stuck in (self._acquitted, self._left_alone) and time.monotonic() < self._ask_again

    def _all_but_sleepers_wait(
        self, running: Mapping[int, RankHandle], positions: Sequence[Position], deadline: float
    ) -> bool:
        """Whether all that are in a step wait for ever if the others do nothing more, and these sleep for good.

        Who has threads that wait for keys, and waits for these, waits for those keys.
        """
        out = {rank: handle for rank, handle in running.items() if _is_elsewhere(positions[rank])}
        if not out or self._positions.planned:
            return False
        joining = {rank for rank in out if positions[rank].beside}
        idle = out.keys() - joining
        waiting = _doomed_beside(positions, idle, joining)
        threads = {rank: positions[rank].beside for rank in joining}
        asked = [wait.record for wait in waiting.values()] + [record for waits in threads.values() for record in waits]
        if (waiting.keys() & running.keys()) | idle != running.keys() or any(
            _gives_up(record, deadline) for record in asked
        ):
            return False
        if not self._sleepers.are_asleep(out, {rank: len(waits) for rank, waits in threads.items()}):
            return False
        pids = [handle.pid for handle in self._ranks if handle.death is None and handle.pid is not None]
        if others_may_act((record.step for waits in threads.values() for record in waits), pids):
            return False
        later = _doomed_beside(self._positions.now(running), idle, joining)  # see `_are_still_stuck`
        if _steps_of(later) != _steps_of(waiting):
            return False
        self.asleep, self._joining = frozenset(idle), frozenset(joining)
        return True

    def _are_stalled(self, running: Mapping[int, RankHandle], positions: Sequence[Position]) -> bool:
        """Whether all are in one collective, and nothing has moved there for long, after one of them had given up a
        message: what is left of that lies in the way of all that follows, in gloo (2.13).
        """
        now, at = time.monotonic(), {rank: positions[rank].at for rank in running}
        calls = {(record.step.target, record.step.sequence) for record in at.values() if record is not None}
        together = len(calls) == 1 and None not in at.values() and all(number != NO_SEQUENCE for _, number in calls)
        if not together or self._positions.planned or not any(each.gave_up for each in positions):
            self._stalled = {}
            return False
        steps = {rank: record.index for rank, record in at.items() if record is not None}
        others = {rank: handle for rank, handle in running.items() if not positions[rank].gave_up}  # whose gloo spins
        if steps != self._stalled:
            self._stalled, self._stalled_begun = steps, now
            self._stalled_since = now
        if self._moved(others):
            self._stalled_since = now
        return now - self._stalled_since > STALL_S or now - self._stalled_begun > STALL_MOVING_S

    def only_stopped(self, running: Mapping[int, RankHandle]) -> bool:
        """Whether nobody is left but ranks that the plan has stopped, and that none of the others had go on."""
        return all(
            self._positions.stopped(rank) and handle.pid is not None and is_stopped(handle.pid)
            for rank, handle in running.items()
        )

    def waits_of_stuck(self, running: Mapping[int, RankHandle]) -> dict[int, Wait]:
        """What the ranks that are still there wait for, or the devices of those that are not."""
        found = waits(_joined(self._positions.now(running, stuck=True), self._joining))
        # One that has issued a collective that all have reached is stuck somewhere else.
        return {rank: wait for rank, wait in found.items() if wait.missing or wait.record.state.open}

    @staticmethod
    def _may_move(position: Position) -> bool:
        step = position.at.step if position.at is not None else None
        if step is None:
            return position.gave_up
        spins = step.of_mpi or position.halted
        return position.gave_up or spins or awaits_key(step) or awaits_meeting(step) or step.op in MAKES_GROUP

    def _moved(self, pending: Mapping[int, RankHandle]) -> bool:
        """Whether one of `pending` ran, or wanted to, since the last look: it may be half way through a transfer."""
        now = {rank: seconds_wanted(handle.pid) for rank, handle in pending.items() if handle.pid is not None}
        ran, self._ran = self._ran, now
        looked, self._looked = self._looked, time.monotonic()
        idle = IDLE_SHARE * (self._looked - looked)
        return any(rank not in ran or now.get(rank, 0.0) - ran[rank] > idle for rank in pending)

    def _another_may_act(
        self, stuck: Mapping[int, RankHandle], waits: Collection[Wait], running: Container[int]
    ) -> bool:
        """Whether a rank has a second Python thread, which no ledger says anything about until it takes a step.

        A key may be set, and a lock given up, by a thread that is left of a rank that has returned, and by others.
        Collectives are the business of the ranks that still run; but who waits there for one that has come to its end
        waits for ever, whatever its own other threads do.
        """
        alive = [handle for handle in self._ranks if handle.death is None]
        beside = [wait.record.step for wait in waits if apart(wait)]
        if beside:
            if others_may_act(beside, [handle.pid for handle in alive if handle.pid is not None]):
                return True
            return any(_may_act(stack) > 1 for stack in self._stacks(alive).values())
        ended = {rank for wait in waits if not wait.anyone for rank in wait.missing if rank not in running}
        if any(rank not in self._at_work for rank in ended) and not self._positions.bent():
            return False
        stacks = self._stacks([handle for handle in alive if handle.rank in stuck or handle.rank in ended])
        return any(_may_act(stack, in_collectives=True) > 1 for stack in stacks.values())


def _doomed_beside(positions: Sequence[Position], asleep: Container[int], joining: Collection[int]) -> dict[int, Wait]:
    """Who waits for ever if ranks that are `asleep` do nothing more, and those `joining` wait for their own threads."""
    joined = enumerate(_joined(positions, joining))
    return doomed([replace(each, ended=True) if rank in asleep else each for rank, each in joined])


def _steps_of(waiting: Mapping[int, Wait]) -> dict[int, int]:
    return {rank: wait.record.index for rank, wait in waiting.items()}


def _joined(positions: Sequence[Position], ranks: Collection[int]) -> list[Position]:
    """`positions`, where each of `ranks` waits for what its other threads do."""
    return [
        replace(each, at=each.beside[0], awaited=each.beside) if rank in ranks and each.beside else each
        for rank, each in enumerate(positions)
    ]


def _may_act(stack: str, *, in_collectives: bool = False) -> int:
    """How many threads of a rank may do something: not those that wait for a lock which another one of them has."""
    number = count_threads(stack, in_collectives=in_collectives)
    if number < 2:
        return number
    return number - sum(not held.by_itself for held in held_locks(threads_in(stack)))


def _any_wants_processor(handles: Iterable[RankHandle]) -> bool:
    return any(wants_processor(handle.pid) for handle in handles if handle.pid is not None)


def _differ(positions: Sequence[Position], waits: Mapping[int, Wait]) -> bool:
    """Whether all of them wait for ranks that are in the same call with other sizes, or another root."""
    there = [(wait.record.step, positions[other].at) for wait in waits.values() for other in wait.missing]
    return all(at is not None and (at.step.op, at.step.sequence) == (step.op, step.sequence) for step, at in there)


def _decided(waits: Collection[Wait], running: Container[int]) -> bool:
    """Whether those that wait for others in a collective, or where ranks meet at a store, are more than these, each
    time, whatever these will do; or none of these is `running` still.
    """
    calls = Counter((wait.record.step.op, wait.record.step.target, wait.record.step.sequence) for wait in waits)
    return all(
        calls[wait.record.step.op, wait.record.step.target, wait.record.step.sequence] > len(wait.missing)
        or not any(rank in running for rank in wait.missing)
        for wait in waits
        if wait.record.step.sequence != NO_SEQUENCE or awaits_meeting(wait.record.step)
    )


def _is_elsewhere(position: Position) -> bool:
    return not position.ended and position.at is None and position.locking is None


def _gives_up(record: Record, deadline: float) -> bool:
    # A wait that ends by itself before the deadline may be what the test is about.
    return bool(record.patience_ms) and record.begin_ns / 1e9 + record.patience_ms / 1e3 <= deadline
