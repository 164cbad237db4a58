"""What refuses a plan, word for word: who wrote it has nothing else to go by."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rankdrill.errors import PlanError
from rankdrill.faults import OPS, STRIKES, Fault, Plan, Strike, What, When, Where, domain, parse_fault
from rankdrill.faults.check import MAX_OCCURRENCE, closest, find_strike
from rankdrill.faults.grammar import MAX_LINE, parse_faults
from rankdrill.faults.strike import at
from rankdrill.step import Kind

SKIPPED = "at collective.*, store.append/barrier/multi_set/queue_push/set/wait"
FORM = "; a fault reads 'rank 2: kill before collective.all_reduce #3'"
END = 'expected the end, `on "pattern"`, `#N` or `every`'


def refusal(line: str) -> str:
    with pytest.raises(PlanError) as refused:
        parse_fault(line)
    return str(refused.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("kill before *.*", f"expected `rank N:` or `rank *:` at 'kill before *.*'{FORM}"),
        ("rank 1:", f"expected a strike's name at 'the end'{FORM}"),
        ("rank 1: kill", f"expected before, after or at at 'the end'{FORM}"),
        ("rank 1: kill before", f"expected before, after or at at 'before'{FORM}"),
        ("rank 1: kill before file", f"expected a step, as in file.rename at 'file'{FORM}"),
        ("rank 1: kill before *.* on part", f"{END} at 'on part'{FORM}"),
        ("rank 1: kill before *.* #1 every", f"{END} at 'every'{FORM}"),
        ("rank 1: kill before *.* and then some more of the same", f"{END} at 'and then some more of the same'{FORM}"),
        ("rank 1: kill before *.* " + "x" * 31, f"{END} at '{'x' * 30}'{FORM}"),
        (
            'rank 1: kill before *.* on "part',
            "the pattern is not well quoted (Unterminated string starting at: line 1 column 28 (char 27)); "
            f"write it as JSON would at '\"part'{FORM}",
        ),
        ("rank 1: kil before *.*", "'kil' is no strike; did you mean kill?"),
        ("rank -1: kill before *.*", "-1 is no rank; write a number from 0, or * for every rank"),
        ("rank 1: kill before *.* #0", "#0 is no occurrence; they count from #1, and `every` means each of them"),
        ('rank 1: kill before *.* on ""', "'' is no pattern; quote a glob, or leave `on` out for any target"),
        ("rank 1: kill at *.*", "kill strikes `before` or `after` a step, not `at` it"),
        ("rank 1: skip before *.*", "skip strikes `at` a step, not `before` it"),
        ("rank 1: kill before file.opne", "file.opne is no step; did you mean open?"),
        (
            "rank 1: kill before object.x",
            "object.x is no step; choose from dump, dumps, load, loads, save",
        ),
        (
            "rank 1: kill before *.open",
            "*.open names an op of no kind; write the kind, as in file.open, or *.*",
        ),
        (
            "rank 1: skip at file.open",
            f"skip has no meaning at file.open; it strikes {SKIPPED}",
        ),
        (
            "rank 1: skip at file.*",
            f"skip has no meaning at file.*; it strikes {SKIPPED}",
        ),
        (
            "rank 1: crash before file.open",
            "crash has no meaning before file.open; "
            "it strikes before file.link/rename/replace, shm.link/rename/replace",
        ),
        ("rank 1: delay before *.*", "delay got 0 arguments; write delay(seconds)"),
        ("rank 1: delay(1, 2) before *.*", "delay got 2 arguments; write delay(seconds)"),
        ("rank 1: exit(1, 2) before *.*", "exit got 2 arguments; write exit(code=1)"),
        ("rank 1: kill(9) before *.*", "kill got 1 argument; write kill, without arguments"),
        ("rank 1: delay(-1) before *.*", "delay(-1): seconds is a number of seconds from 0.0 to 3600.0"),
        ("rank 1: exit(256) before *.*", "exit(256): code is a whole number from 0 to 255"),
        (
            "rank 1: oversize(1.5) at object.dumps",
            "oversize(1.5): bytes is a whole number of bytes from 1 to 1099511627776",
        ),
        (
            "rank 1: delay(soon) before *.*",
            "'soon' is no number; a strike's arguments are numbers, as in oversize(65536)",
        ),
    ],
)
def test_a_line_is_refused_with_what_to_write_instead(line: str, said: str) -> None:
    assert refusal(line) == f"{line!r}: {said}"
    with pytest.raises(PlanError) as refused:
        Plan.parse(f"\n  {line}")
    assert str(refused.value) == f"line 2 of the plan: {line!r}: {said}"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rank 1: kill during *.*", "'during' is no place; choose from after, at, before"),
        ("rank 1: kill befor *.*", "'befor' is no place; did you mean before?"),
        ("rank 1: kill before fiel.open", "'fiel' is no kind of step; did you mean file?"),
        (
            "rank 1: kill before disk.open",
            "'disk' is no kind of step; choose from clock, collective, file, group, memory, object, shm, store",
        ),
        ("x" * (MAX_LINE + 1), "a fault of 10001 characters; 10000 are the most"),
    ],
)
def test_a_word_that_is_none_of_few_is_refused_with_those_there_are(line: str, said: str) -> None:
    assert refusal(line) == said


def test_a_line_as_long_as_may_be_is_read() -> None:
    line = 'rank 1: kill before *.* on "'
    line += "x" * (MAX_LINE - len(line) - 1) + '"'
    assert str(parse_fault(line)) == line


def test_what_is_no_text_is_no_plan() -> None:
    with pytest.raises(PlanError) as refused:
        parse_faults(b"rank 1: kill before *.*")  # type: ignore[arg-type]
    assert str(refused.value) == (
        "a plan is text, not bytes; write one fault per line, as in 'rank 2: kill before collective.all_reduce #3'"
    )


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ("rank 01 :kill  before\tfile.open", "rank 1: kill before file.open"),
        ("rank *:exit before *.*   every  # at last", "rank *: exit(1) before *.* every"),
        ("rank 0: exit( ) before *.* #1", "rank 0: exit(1) before *.*"),
        ("rank 0: delay( 2.50 )after file.*#2", "rank 0: delay(2.5) after file.* #2"),
        ("rank 0: delay(1e3) after file.*", "rank 0: delay(1000) after file.*"),
        ("rank 0: kill before *.* # 3 times", "rank 0: kill before *.*"),
        ('rank 0: kill before *.* on "#"   #3 # on the third', 'rank 0: kill before *.* on "#" #3'),
        (f"rank 0: kill before *.* #{MAX_OCCURRENCE}", f"rank 0: kill before *.* #{MAX_OCCURRENCE}"),
        ("rank 0: exit(0) before *.*", "rank 0: exit(0) before *.*"),
        ("rank 0: exit(255) before *.*", "rank 0: exit(255) before *.*"),
        ("rank 0: delay(3600) before *.*", "rank 0: delay(3600) before *.*"),
        ('rank 0: kill before *.* on "\\u00e4"', 'rank 0: kill before *.* on "ä"'),
        ('rank 0: kill before *.* on "\\u2028"', 'rank 0: kill before *.* on "\\u2028"'),
    ],
)
def test_a_line_may_be_spaced_as_one_likes(line: str, printed: str) -> None:
    assert str(parse_fault(line)) == printed
    assert str(Plan.parse(f"# first\n{line}\n  # last")) == printed


FAULT: dict[str, Any] = {"rank": 0, "strike": "kill", "when": "before", "kind": "file"}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("kill", " is str, not an object"),
        ({**FAULT, "ops": "open"}, " has a field 'ops'; did you mean op?"),
        (
            {**FAULT, "x": 1},
            " has a field 'x'; choose from args, kind, nth, op, pattern, rank, strike, when",
        ),
        *(({key: FAULT[key] for key in FAULT if key != lost}, f" lacks {lost!r}") for lost in FAULT),
        ({**FAULT, "rank": True}, ": True is no rank; write a number from 0, or * for every rank"),
        ({**FAULT, "rank": 1.0}, ": 1.0 is no rank; write a number from 0, or * for every rank"),
        (
            {**FAULT, "rank": 10**30},
            ": no world has a rank 1000000000000000000000000000000; the highest is 999999999",
        ),
        ({**FAULT, "when": "soon"}, ": 'soon' is none of before, after, at"),
        (
            {**FAULT, "kind": "disk"},
            ": 'disk' is none of collective, file, shm, object, memory, clock, group, store",
        ),
        ({**FAULT, "nth": 0}, ": #0 is no occurrence; they count from #1, and `every` means each of them"),
        ({**FAULT, "nth": True}, ": #True is no occurrence; they count from #1, and `every` means each of them"),
        ({**FAULT, "nth": 1.0}, ": #1.0 is no occurrence; they count from #1, and `every` means each of them"),
        ({**FAULT, "pattern": 3}, ": 3 is no pattern; quote a glob, or leave `on` out for any target"),
        ({**FAULT, "args": 1}, ": a field has the wrong type ('int' object is not iterable)"),
        ({**FAULT, "op": ["open"]}, ": a field has the wrong type (unhashable type: 'list')"),
        ({**FAULT, "strike": 7}, ": '7' is no strike; choose from " + ", ".join(sorted(STRIKES))),
        (
            {**FAULT, "strike": "delay", "args": ["1"]},
            ": delay(1): seconds is a number of seconds from 0.0 to 3600.0",
        ),
        (
            {**FAULT, "strike": "exit", "args": [True]},
            ": exit(True): code is a whole number from 0 to 255",
        ),
    ],
)
def test_json_is_refused_with_what_to_write_instead(entry: Any, said: str) -> None:
    with pytest.raises(PlanError) as refused:
        Plan.from_json(json.dumps({"version": 1, "faults": [FAULT, entry]}))
    assert str(refused.value) == f"fault 1 of the plan{said}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "the plan is no JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[]", 'a plan in JSON is {"version": 1, "faults": [...]}'),
        ('{"version": 1}', 'a plan in JSON is {"version": 1, "faults": [...]}'),
        ('{"version": 1, "faults": {}}', 'a plan in JSON is {"version": 1, "faults": [...]}'),
        ('{"faults": []}', "the plan has version None; this rankdrill reads version 1"),
        ('{"version": 2, "faults": []}', "the plan has version 2; this rankdrill reads version 1"),
    ],
)
def test_json_that_is_no_plan_is_refused(text: str, said: str) -> None:
    with pytest.raises(PlanError) as refused:
        Plan.from_json(text)
    assert str(refused.value) == said


@pytest.mark.parametrize("text", [None, 3, [], {"version": 1, "faults": []}])
def test_what_json_cannot_be_is_no_plan(text: Any) -> None:
    with pytest.raises(PlanError) as refused:
        Plan.from_json(text)
    kind = type(text).__name__
    assert str(refused.value) == f"a plan in JSON is text or bytes, not {kind}; give what Plan.to_json() returned"


@pytest.mark.parametrize("rank", [0, 10**9 - 1])
def test_every_rank_that_json_may_name_is_read_as_a_line_too(rank: int) -> None:
    plan = Plan.from_json(json.dumps({"version": 1, "faults": [{**FAULT, "rank": rank}]}))
    assert Plan.parse(str(plan)) == plan


def test_json_says_every_field_and_needs_but_four() -> None:
    plan = Plan.parse('rank 2: exit(3) after file.open on "*.pt" #4\nrank *: kill before *.* every')
    assert json.loads(plan.to_json()) == {
        "version": 1,
        "faults": [
            {
                "rank": 2,
                "strike": "exit",
                "args": [3],
                "when": "after",
                "kind": "file",
                "op": "open",
                "pattern": "*.pt",
                "nth": 4,
            },
            {
                "rank": "*",
                "strike": "kill",
                "args": [],
                "when": "before",
                "kind": "*",
                "op": "*",
                "pattern": None,
                "nth": "every",
            },
        ],
    }
    assert plan.to_json().startswith('{\n "version": 1,')
    assert Plan.from_json(json.dumps({"version": 1, "faults": [FAULT]})) == Plan.parse("rank 0: kill before file.*")


def test_what_is_similar_comes_first_and_at_most_three_are_named() -> None:
    assert closest("stak", ["stack", "stale", "stuck", "stab", "full"]) == "did you mean stack or stab or stuck?"
    assert closest("x", ["b", "a"]) == "choose from a, b"
    assert find_strike("kill").name == "kill"
    with pytest.raises(PlanError, match=r"^'kil' is no strike; did you mean kill\?$"):
        find_strike("kil")


@pytest.mark.parametrize(
    ("strike", "words"),
    [
        ("kill", "before or after any step"),
        ("limit", "before any step"),
        ("skip", SKIPPED),
        ("extra", "at collective.* but monitored_barrier"),
        ("wrong_root", "at collective.broadcast/gather/reduce/scatter"),
        ("unpicklable", "at object.* but load, loads"),
        (
            "torn",
            "before file.lstat/open/read/stat, shm.attach/lstat/read/stat; "
            "after file.fsync/link/rename/replace/write, shm.fsync/link/rename/replace/write",
        ),
    ],
)
def test_where_a_strike_makes_sense_reads_aloud(strike: str, words: str) -> None:
    assert domain(STRIKES[strike]) == words


@pytest.mark.parametrize(
    ("left_out", "words"),
    [
        (["open", "stat"], "at file.* but open, stat"),
        (["stat", "open", "link"], "at file.* but link, open, stat"),
        (
            ["open", "stat", "link", "read"],
            f"at file.{'/'.join(sorted(OPS[Kind.FILE] - {'open', 'stat', 'link', 'read'}))}",
        ),
    ],
)
def test_a_few_ops_that_are_left_out_are_named_and_of_many_the_others(left_out: list[str], words: str) -> None:
    class Made(Strike):
        name = "made"
        does = seen = ""
        on = at({Kind.FILE: OPS[Kind.FILE] - set(left_out)})

    assert domain(Made) == words


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (Where(0, When.BEFORE, "disk", "open"), "'disk' is no kind of step; choose from clock, collective,"),  # type: ignore[arg-type]
        (Where(0, When.BEFORE, "fiel"), "'fiel' is no kind of step; did you mean file?"),  # type: ignore[arg-type]
        (Where(0, When.BEFORE, pattern=b"x"), "b'x' is no pattern"),  # type: ignore[arg-type]
        (Where(1.5, When.BEFORE), "1.5 is no rank"),  # type: ignore[arg-type]
        (Where(10**9, When.BEFORE), "no world has a rank 1000000000; the highest is 999999999"),
        (Where(0, When.BEFORE, nth=MAX_OCCURRENCE + 1), "#4294967296 is no occurrence"),
    ],
)
def test_a_fault_made_by_hand_is_checked_too(where: Where, said: str) -> None:
    with pytest.raises(PlanError) as refused:
        Fault(where, What("kill"))
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(("size", "ranks"), [(1, "1 rank: 0 to 0"), (2, "2 ranks: 0 to 1")])
def test_a_rank_that_a_world_does_not_have_is_refused(size: int, ranks: str) -> None:
    plan = Plan.parse("rank *: kill before *.*\nrank 2: kill before file.open")
    plan.check(3)
    with pytest.raises(PlanError) as refused:
        plan.check(size)
    assert str(refused.value) == f"'rank 2: kill before file.open' names rank 2, but the world has {ranks}"


def test_too_many_faults_are_refused() -> None:
    with pytest.raises(PlanError) as refused:
        Plan((parse_fault("rank 0: kill before *.*"),) * 257)
    assert str(refused.value) == "a plan has at most 256 faults, this one 257; split it in several"
