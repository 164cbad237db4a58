"""What is true of a drawn program: which verdicts on it are right."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import dropwhile

from tests.properties.drawn.mistakes import OF_KEYS, OF_MESSAGES, How, Mistake
from tests.properties.drawn.programs import Call, Collect, Exchange, Key, Loop, Message, Program, Statement, Visit
from tests.properties.drawn.settling import comes_right
from tests.properties.drawn.writing import Written

__all__ = ["Truth", "truth_of"]

_KINDS = {
    How.MISSING: "missing call",
    How.EXTRA: "extra call",
    How.SWAP: "call ordering",
    How.OP: "call ordering",
    How.REDUCE_OP: "operator mismatch",
    How.ROOT: "root mismatch",
    How.DTYPE: "datatype mismatch",
    How.SIZE: "size mismatch",
    How.GROUP: "group mismatch",
    How.RAISE: "lost rank",
    How.KILL: "lost rank",
    How.RETURN: "missing call",
    How.LEAK: "request leak",
    How.HAZARD: "input hazard",
}


@dataclass(frozen=True, slots=True)
class Truth:
    """`culprit` made a mistake of one of `kinds`, at one of `lines`, if any; `between` may be called at odds.

    Of a message that does not fit either of its `ends` may be named: what sets the two apart is not looked at here.
    """

    kinds: frozenset[str]
    culprit: int
    lines: frozenset[int]
    between: frozenset[frozenset[int]] = field(default_factory=frozenset)
    ends: frozenset[int] = frozenset()

    def names(self, ranks: frozenset[int], *, accuses: bool) -> bool:
        """Whether it is right that these `ranks` are accused, or called at odds."""
        if self.ends:
            return bool(ranks) and (ranks <= self.ends or (not accuses and self.ends <= ranks))
        return ranks == {self.culprit} or (ranks in self.between and not accuses)

    def spares(self, ranks: frozenset[int]) -> bool:
        """Whether nobody who has to do with the mistake is among the accused."""
        return self.culprit not in ranks and not ranks & self.ends


def truth_of(program: Program, mistake: Mistake | None, text: Written) -> Truth | None:
    """None if nothing is wrong with it."""
    if mistake is None:
        return None
    if comes_right(program, mistake, eager=False):
        return _leak(program, mistake, text)
    if mistake.how is How.ARRIVAL:
        return Truth(frozenset({"message race"}), mistake.rank, text.guilty)
    if mistake.how in OF_KEYS:
        return _of_keys(program, mistake, text)
    if mistake.how in OF_MESSAGES and isinstance(collected := program.at(mistake.place), Collect):
        ends = frozenset({mistake.rank, collected.root}) if program.ranks == 3 else frozenset()
        return Truth(frozenset({"unmatched message"}), mistake.rank, frozenset() if ends else text.guilty, ends=ends)
    if mistake.how in OF_MESSAGES:
        shown = frozenset({"unmatched message", "deadlock", "size mismatch"})
        return Truth(shown, mistake.rank, frozenset(), ends=_ends(program, mistake))
    between = frozenset(_at_odds(program, mistake))
    kinds = {_KINDS[mistake.how], *_as_right(program, mistake, one_against_one=bool(between))}
    lines = text.guilty | _passed(program, mistake, text)
    if mistake.how is How.RETURN and not _began(program, mistake):
        lines = frozenset()  # nor does who returned before it did anything
    if mistake.how is How.KILL:
        lines = frozenset()  # whoever is killed from without says nothing of it
    if mistake.how is How.GROUP and "missing call" in kinds:
        lines |= text.lines[mistake.place]
    return Truth(frozenset(kinds), mistake.rank, lines, between)


def _leak(program: Program, mistake: Mistake, text: Written) -> Truth | None:
    """What is wrong though nobody misses the rank that returns early: it has not waited for a call of its own."""
    if mistake.how is not How.RETURN:
        return None
    struck = next(iter(_visits_behind(program, mistake)))
    before = [visit for visit in program.visits() if visit.place < struck.place and visit.round == struck.round][-1:]
    for visit in before:
        call, block = visit.statement, program.block[struck.place[0]]
        follows = program.behind(visit.place) == struck.place
        alike = visit.place[0] == struck.place[0] or not isinstance(block, Loop)  # before a loop it is waited for
        if isinstance(call, Call) and call.held and follows and alike and program.concerns(call, mistake.rank):
            return Truth(frozenset({_KINDS[How.LEAK]}), mistake.rank, text.lines[visit.place])
    return None


def _of_keys(program: Program, mistake: Mistake, text: Written) -> Truth:
    """Of a key that one sets and one gets, either may be wrong; where several do the same, the odd one is."""
    statement = program.at(mistake.place)
    concerned = frozenset(_group(program, statement, mistake.rank))
    kinds = frozenset({"missing key"})
    if len(concerned) == 2:
        return Truth(kinds, mistake.rank, frozenset(), ends=concerned)
    return Truth(kinds, mistake.rank, text.guilty)


def _ends(program: Program, mistake: Mistake) -> frozenset[int]:
    """Whom the message that was meant concerns, and the one that was not."""
    messages = (program.at(mistake.place), mistake.other)
    return frozenset(end for each in messages if isinstance(each, Message) for end in (each.source, each.target))


def _as_right(program: Program, mistake: Mistake, *, one_against_one: bool) -> set[str]:
    """The kinds by which the mistake may as well be called."""
    usual, other = program.at(mistake.place), mistake.other
    match mistake.how:
        case How.MISSING | How.EXTRA if one_against_one:
            return {"missing call", "extra call"}  # what one leaves out is what the other does on top
        case How.EXTRA if _made_later(program, mistake):
            return {"deadlock"}  # it may as well be that call, and come too early
        case How.RETURN:
            left = _not_come_to(program, mistake)
            messages = {"unmatched message"} if any(isinstance(each, Message | Collect) for each in left) else set()
            return messages | ({"missing key"} if any(isinstance(each, Key | Exchange) for each in left) else set())
        case How.SWAP:
            return _swapped(program, usual, program.at(program.behind(mistake.place)), mistake.rank)
        case How.GROUP:
            # Who is alone in a group waits for nobody there, and nobody for it.
            alone = len(_group(program, usual, mistake.rank)) == 1
            at_once = other is not None and len(_group(program, other, mistake.rank)) == 1
            if (alone or at_once) and one_against_one:
                return {"missing call", "extra call"}
            return {"extra call"} if alone else {"missing call"} if at_once else set()
        case _:
            return set()


def _made_later(program: Program, mistake: Mistake) -> bool:
    """Whether the call that is made on top is one that the rank makes later, on the same group."""
    extra = mistake.other
    calls = (each for each in _not_come_to(program, mistake) if isinstance(each, Call))
    return isinstance(extra, Call) and any((each.op, each.family) == (extra.op, extra.family) for each in calls)


def _swapped(program: Program, first: Statement, second: Statement, rank: int) -> set[str]:
    """On two groups each waits for the other: a circle. What is done first is the second's call on its group."""
    assert isinstance(first, Call)
    assert isinstance(second, Call)
    if first.family == second.family:
        return set()
    return {"deadlock", "group mismatch"} if first.op == second.op else {"deadlock"}


def _passed(program: Program, mistake: Mistake, text: Written) -> frozenset[int]:
    """Of a rank that went past a call the next call that it made; of one that returned the first it did not make."""
    if mistake.how not in (How.MISSING, How.RETURN):
        return frozenset()
    found: set[int] = set()
    before: frozenset[int] = frozenset()
    groups: set[object] = set()
    behind = False
    for visit in program.visits():
        if not program.concerns(visit.statement, mistake.rank):
            behind = behind or mistake.strikes(program, visit.place, visit.round, mistake.rank)
            continue
        if behind and mistake.how is How.MISSING:
            return text.lines[visit.place]
        behind = behind or mistake.strikes(program, visit.place, visit.round, mistake.rank)
        if not behind:
            before = text.lines[visit.place]
        elif (group := _where(program, visit.statement, mistake.rank)) not in groups:
            groups.add(group)  # nobody knows which of them the rank was to go to first
            found |= text.lines[visit.place]
    return frozenset(found) | (before if mistake.how is How.RETURN else frozenset())


def _began(program: Program, mistake: Mistake) -> bool:
    """Whether the rank made a call before its mistake."""
    first = next(visit for visit in program.visits() if program.concerns(visit.statement, mistake.rank))
    return first not in _visits_behind(program, mistake)


def _not_come_to(program: Program, mistake: Mistake) -> list[Statement]:
    """What a rank that ends before its time would have done."""
    return [
        visit.statement for visit in _visits_behind(program, mistake) if program.concerns(visit.statement, mistake.rank)
    ]


def _visits_behind(program: Program, mistake: Mistake) -> list[Visit]:
    """All from the mistake on."""
    return list(
        dropwhile(lambda visit: not mistake.strikes(program, visit.place, visit.round, mistake.rank), program.visits())
    )


def _group(program: Program, statement: Statement, rank: int) -> tuple[int, ...]:
    match statement:
        case Message(source=source, target=target):
            return source, target
        case Key(source=source, targets=targets):
            return source, *targets
        case Call(family=family):
            return program.families[family].of(rank)
        case _:
            return tuple(range(program.ranks))


def _where(program: Program, statement: Statement, rank: int) -> tuple[object, ...]:
    """The group, which may have the same members as another; or whom the message, or the key, concerns."""
    named = statement.family if isinstance(statement, Call) else type(statement).__name__
    return named, *_group(program, statement, rank)


def _at_odds(program: Program, mistake: Mistake) -> set[frozenset[int]]:
    """The two of a group of two: one against one, nobody can say who is right."""
    met = [program.at(mistake.place), mistake.other]
    if mistake.how is How.EXTRA:
        met = [mistake.other]
    if mistake.how is How.SWAP:
        met.append(program.at(program.behind(mistake.place)))
    if mistake.how in (How.LEAK, How.HAZARD, How.RAISE, How.KILL):
        return set()
    if mistake.how is How.RETURN:  # it shows at the first of those that anybody else is concerned in
        missed = {frozenset(_group(program, statement, mistake.rank)) for statement in _not_come_to(program, mistake)}
        shared = {group for group in missed if len(group) > 1}
        return shared if len(shared) == 1 and all(len(group) == 2 for group in shared) else set()
    groups = (_group(program, statement, mistake.rank) for statement in met if statement is not None)
    return {frozenset(group) for group in groups if len(group) == 2 and mistake.rank in group}
