"""Where two sequences of calls part: drawn programs, of which one rank leaves a call out or makes one more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdrill.diagnosis import FindingKind
from rankdrill.diagnosis.calls.common_caller import from_one_function
from rankdrill.diagnosis.calls.loops import comes_round_alone, is_in_a_loop, share_a_loop
from rankdrill.diagnosis.calls.sequences import parting
from rankdrill.diagnosis.calls.source import Order, comes_to_both, order_of
from rankdrill.diagnosis.calls.wholes import Wholes
from rankdrill.step import Kind, Site, Step

OPS = ("all_reduce", "broadcast", "barrier")


def calls(*lines: int) -> list[Step]:
    """One call a line; the lines of a program that no source is known of."""
    return [
        Step(Kind.COLLECTIVE, OPS[line % len(OPS)], "default", sequence=place, site=Site("gone.py", line, "train"))
        for place, line in enumerate(lines)
    ]


@given(lines=st.lists(st.integers(0, 5), min_size=1, max_size=30), data=st.data())
def test_a_call_left_out_is_found_when_all_is_over(lines: list[int], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(lines) - 1))
    fewer = lines[:place] + lines[place + 1 :]
    missing = parting(calls(*lines), calls(*fewer), complete=True)
    extra = parting(calls(*fewer), calls(*lines), complete=True)
    assert missing is not None
    assert extra is not None
    assert (missing.kind, extra.kind) == (FindingKind.MISSING, FindingKind.EXTRA)
    # Of equal calls in a row any is right: without it the rest is the same.
    for found in (missing, extra):
        at = found.call.sequence
        assert lines[:at] + lines[at + 1 :] == fewer


@given(lines=st.permutations(range(12)), data=st.data())
def test_a_call_left_out_is_found_where_it_shows_later(lines: list[int], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(lines) - 3))
    shows = data.draw(st.integers(place + 2, len(lines) - 1))
    fewer = lines[:place] + lines[place + 1 :]
    found = parting(calls(*lines[:shows]), calls(*fewer[:shows]), complete=False)
    assert found is not None
    assert (found.kind, found.call.site) == (FindingKind.MISSING, calls(*lines)[place].site)


def test_equal_sequences_do_not_part() -> None:
    assert parting(calls(0, 1, 2), calls(0, 1, 2), complete=True) is None
    assert parting(calls(1), calls(1), complete=False) is None


def test_who_makes_the_same_calls_from_lines_of_its_own_leaves_nothing_out() -> None:
    assert parting(calls(0, 3, 6, 0, 3), calls(9, 3, 9, 9, 4), complete=False) is None


def test_what_a_round_has_always_begun_with_was_left_out() -> None:
    found = parting(calls(0, 1, 0, 1, 0), calls(0, 1, 0, 1, 1), complete=False)
    assert found is not None
    assert (found.kind, found.call.sequence) == (FindingKind.MISSING, 4)


def test_calls_whose_line_is_unknown_say_nothing() -> None:
    bare = Step(Kind.COLLECTIVE, "barrier", "default", sequence=0)
    assert parting([bare], calls(0), complete=False) is None
    assert parting(calls(0), [bare], complete=False) is None


LAYERS = """
def layer(drop):
    reduce()
    if drop:
        return
    gather()

def train():
    for drop in drops:
        layer(drop)
    layer(True)
    layer(False)

def stages():
    for stage in range(3):
        for part in range(2):
            reduce()
        if stage:
            gather()
"""


def test_who_is_still_in_a_round_made_one_call_more(tmp_path: Path) -> None:
    source = tmp_path / "layers.py"
    source.write_text(LAYERS)
    called = Site(str(source), 10, "train")
    reduce, gather = (Site(str(source), line, "layer", caller=called) for line in (3, 6))
    theirs, mine = [reduce, gather, reduce, reduce], [reduce, gather, reduce, gather]
    found = parting(on_lines(theirs), on_lines(mine), complete=False)
    assert found is not None
    assert (found.kind, found.call.site) == (FindingKind.EXTRA, gather)
    # Where it came from there, it has come round itself, and left the other out.
    found = parting(on_lines([reduce, gather, reduce]), on_lines([reduce, gather, gather]), complete=False)
    assert found is not None
    assert (found.kind, found.call.site) == (FindingKind.MISSING, reduce)


def test_a_loop_within_the_round_may_have_been_left_early(tmp_path: Path) -> None:
    source = tmp_path / "layers.py"
    source.write_text(LAYERS)
    reduce, gather = (Site(str(source), line, "stages") for line in (17, 19))
    found = parting(
        on_lines([reduce, gather, reduce, reduce]), on_lines([reduce, gather, reduce, gather]), complete=False
    )
    assert found is not None
    assert (found.kind, found.call.site) == (FindingKind.MISSING, reduce)


WARM_UP = """
def warm_up(times):
    for _ in range(times):
        sync()

def train():
    warm_up(3)
    for step in range(2):
        for part in parts:
            reduce()
        clip()
"""


def test_who_is_behind_where_nothing_brings_it_back_has_made_one_call_more(tmp_path: Path) -> None:
    source = tmp_path / "warm_up.py"
    source.write_text(WARM_UP)
    sync = Site(str(source), 4, "warm_up", caller=Site(str(source), 7, "train"))
    reduce = Site(str(source), 10, "train")
    found = parting(on_lines([sync, sync, reduce]), on_lines([sync, sync, sync]), complete=False)
    assert found is not None
    assert (found.kind, found.call.site) == (FindingKind.EXTRA, sync)


def of_sizes(*made: tuple[Site, int]) -> list[Step]:
    return [
        replace(step, digest=size) for step, (_, size) in zip(on_lines([site for site, _ in made]), made, strict=True)
    ]


def test_who_begins_with_the_first_part_again_has_come_round(tmp_path: Path) -> None:
    """The second part of three would be of another size: it has left out what stands behind the parts."""
    source = tmp_path / "warm_up.py"
    source.write_text(WARM_UP)
    reduce, clip = (Site(str(source), line, "train") for line in (10, 11))
    theirs = of_sizes((reduce, 3), (reduce, 2), (clip, 1))
    for came, kind, site in ((3, FindingKind.MISSING, clip), (4, FindingKind.EXTRA, reduce)):
        found = parting(theirs, of_sizes((reduce, 3), (reduce, 2), (reduce, came)), complete=False)
        assert found is not None
        assert (found.kind, found.call.site) == (kind, site)


def test_who_leaves_a_loop_early_in_the_first_round_has_left_a_call_out(tmp_path: Path) -> None:
    source = tmp_path / "layers.py"
    source.write_text(LAYERS)
    reduce, gather = (Site(str(source), line, "stages") for line in (17, 19))
    found = parting(on_lines([reduce, reduce]), on_lines([reduce, gather]), complete=False)
    assert found is not None
    assert (found.kind, found.call.site) == (FindingKind.MISSING, reduce)


EPOCHS = """
def evaluate():
    barrier()

def train(self):
    leader = self.rank == 0
    main = build()
    for epoch in range(2):
        for batch in batches:
            reduce()
        if {asks}:
            evaluate()
        {orelse}
"""


@pytest.mark.parametrize(
    ("asks", "orelse", "kind"),
    [
        ("self.rank == 0", "", FindingKind.EXTRA),
        ("is_main_process()", "", FindingKind.EXTRA),
        ("leader", "", FindingKind.EXTRA),
        ("main.epoch == 2", "", FindingKind.MISSING),
        ("epoch % 2 == 0 and remaining", "", FindingKind.MISSING),
        ("self.rank == 0", "else: evaluate()", FindingKind.MISSING),
        ("self.rank == 0", "if self.rank: evaluate()", FindingKind.MISSING),
    ],
)
def test_what_is_for_some_ranks_alone_was_not_left_out_by_the_others(
    tmp_path: Path, asks: str, orelse: str, kind: FindingKind
) -> None:
    source = tmp_path / "epochs.py"
    source.write_text(EPOCHS.format(asks=asks, orelse=orelse))
    reduce = Site(str(source), 10, "train")
    barrier = Site(str(source), 3, "evaluate", caller=Site(str(source), 12, "train"))
    found = parting(on_lines([reduce, reduce, reduce]), on_lines([reduce, reduce, barrier]), complete=False)
    assert found is not None
    assert (found.kind, found.call.site) == (kind, barrier if kind is FindingKind.EXTRA else reduce)


def test_lines_of_two_calls_of_a_function_are_told_by_the_calls(tmp_path: Path) -> None:
    source = tmp_path / "layers.py"
    source.write_text(LAYERS)
    first, second = (Site(str(source), line, "train") for line in (11, 12))
    gather, reduce = Site(str(source), 6, "layer", caller=first), Site(str(source), 3, "layer", caller=second)
    assert [site.line for site in from_one_function(reduce, gather)] == [12, 11]
    assert [site.line for site in from_one_function(reduce, replace(gather, caller=second))] == [3, 6]


SECTIONS = """
class Section:
    def __enter__(self):
        barrier()
    def __exit__(self, *error):
        barrier()

@contextmanager
def timed():
    barrier()
    yield
    finish()

def finish():
    barrier()

def part(items):
    with Section():
        if not items:
            return
        reduce()

def timed_part(items):
    with timed():
        if not items:
            return
        reduce()
"""


@pytest.mark.parametrize(
    ("inner", "function", "kind"),
    [
        ([(4, "__enter__")], "part", FindingKind.EXTRA),
        ([(6, "__exit__")], "part", FindingKind.MISSING),
        ([(10, "timed")], "timed_part", FindingKind.EXTRA),
        ([(12, "timed")], "timed_part", FindingKind.MISSING),
        ([(15, "finish"), (12, "timed")], "timed_part", FindingKind.MISSING),
    ],
)
def test_what_a_with_calls_at_its_end_comes_after_what_stands_in_it(
    tmp_path: Path, inner: list[tuple[int, str]], function: str, kind: FindingKind
) -> None:
    source = tmp_path / "sections.py"
    source.write_text(SECTIONS)
    head, reduce_line = {"part": (18, 21), "timed_part": (24, 27)}[function]
    reduce, came = Site(str(source), reduce_line, function), Site(str(source), head, function)
    for line, name in reversed(inner):
        came = Site(str(source), line, name, caller=came)
    found = parting(on_lines([reduce]), on_lines([came]), complete=False)
    assert found is not None
    assert (found.kind, found.call.site) == (kind, came if kind is FindingKind.EXTRA else reduce)


HANDLED = """
def step():
    try:
        load()
        reduce()
    except OSError:
        tell()
        {then}
    reduce()
"""


@pytest.mark.parametrize(("then", "kind"), [("reduce()", FindingKind.EXTRA), ("return", None)])
def test_who_failed_calls_what_is_due_behind_a_call_of_its_own(
    tmp_path: Path, then: str, kind: FindingKind | None
) -> None:
    """Where that is not due any more nobody can say whether its own call was meant for the others' one."""
    source = tmp_path / "handled.py"
    source.write_text(HANDLED.format(then=then))
    reduce, tell = Site(str(source), 5, "step", via="reduce"), Site(str(source), 7, "step", via="tell")
    found = parting(on_lines([reduce]), on_lines([tell]), complete=False)
    assert (found.kind if found is not None else None) is kind
    assert found is None or found.call.site is tell


LEAVING = """
def reduce_in_a_tree():
    while True:
        if parent:
            send()
            break
        receive()
    for one in range(3):
        for other in range(3):
            a()
            break
        b()
    for one in range(3):
        if one:
            c()
            if one == 2:
                continue
            return
        return d()
    for one in range(3):
        try:
            return e()
        except OSError:
            pass
"""


def test_a_loop_that_is_left_brings_nobody_back(tmp_path: Path) -> None:
    source = tmp_path / "leaving.py"
    source.write_text(LEAVING)
    lines = {name: number for number, text in enumerate(LEAVING.splitlines(), 1) for name in [text.strip()]}
    comes_back = {
        name: is_in_a_loop(Site(str(source), lines[name], "reduce_in_a_tree"))
        for name in ("send()", "receive()", "a()", "b()", "c()", "return d()", "return e()")
    }
    assert comes_back == {
        "send()": False,
        "receive()": True,
        "a()": True,  # of the outer one
        "b()": True,
        "c()": True,  # it may go on
        "return d()": False,
        "return e()": True,  # where it fails
    }


def test_lines_that_fitted_before_leave_each_other_not_out(tmp_path: Path) -> None:
    source = tmp_path / "layers.py"
    source.write_text(LAYERS)
    mine, theirs = Site(str(source), 17, "stages"), Site(str(source), 19, "stages")
    assert parting(on_lines([theirs] * 3), on_lines([mine] * 3), complete=False) is None


def exchanges(*lines: int) -> list[Step]:
    """Two calls a line, as a collective of Python objects makes them."""
    ops = ("all_gather", "gather")
    sites = [Site("gone.py", line, "train", via="gather_object") for line in lines]
    steps = [(op, at) for at in sites for op in ops]
    return [
        Step(Kind.COLLECTIVE, op, "default", sequence=place, site=at, digest=place % 2)
        for place, (op, at) in enumerate(steps)
    ]


def test_what_the_user_called_is_left_out_as_a_whole() -> None:
    more, fewer = exchanges(1, 4, 7), exchanges(4, 7)
    missing, extra = parting(more, fewer, complete=True), parting(fewer, more, complete=True)
    assert missing is not None
    assert extra is not None
    assert {found.call.site.line for found in (missing, extra) if found.call.site} == {1}
    # It shows at the last of them, where one of the two is a call behind: the first was one too many.
    shown = parting([*exchanges(4), *calls(8)], exchanges(1, 4)[:3], complete=False)
    assert shown is not None
    assert (shown.kind, shown.call.site) == (FindingKind.EXTRA, more[0].site)


def test_a_forward_pass_is_one_call_too_many_as_a_whole() -> None:
    """One that broadcasts buffers of three dtypes, by one rank alone: it meets the others' next one."""

    def forward(line: int) -> list[Step]:
        site = Site("gone.py", line, "train", via="DistributedDataParallel.forward")
        return [Step(Kind.COLLECTIVE, "broadcast", "default", f"{size}", site=site) for size in range(3)]

    backward = calls(30)
    theirs = [*forward(1), *backward, *forward(1), *backward]
    mine = [*forward(1), *backward, *forward(2), *forward(1)][: len(theirs)]
    found = parting(theirs, mine, complete=False)
    assert found is not None
    assert (found.kind, found.call.site) == (FindingKind.EXTRA, forward(2)[0].site)


def test_what_a_helper_calls_is_one_call_too_many_as_a_whole() -> None:
    def helper(line: int) -> list[Site]:
        called = Site("gone.py", line, "train", caller=Site("gone.py", 90, "main"))
        return [Site("gone.py", at, "forward", caller=called) for at in (50, 51)]

    reduce = Site("gone.py", 3, "train", caller=Site("gone.py", 90, "main"))
    theirs = on_lines([*helper(2), reduce, *helper(2), reduce])
    mine = on_lines([*helper(2), reduce, *helper(4), helper(2)[0]])
    found = parting(theirs, mine, complete=False)
    assert found is not None
    assert (found.kind, found.call.site) == (FindingKind.EXTRA, helper(4)[0])
    # That one line calls all there is makes no two calls one.
    assert not Wholes(on_lines([reduce, reduce, reduce])).holds(0, 2)


def on_lines(sites: Sequence[Site]) -> list[Step]:
    return [
        Step(Kind.COLLECTIVE, "all_reduce", "default", sequence=place, site=site) for place, site in enumerate(sites)
    ]


SOURCE = """
def train(rank):
    if rank:
        a()
    else:
        b()
    for i in range(3):
        c()
        for j in range(2):
            d()
        if i:
            e()
    try:
        f()
    except ValueError:
        g()
    match rank:
        case 0:
            h()
        case _:
            i()
    k()

class Trainer:
    def train(self):
        a()
"""


def site(name: str, source: Path) -> Site:
    line = next(number for number, text in enumerate(SOURCE.splitlines(), 1) if text.strip() == f"{name}()")
    return Site(str(source), line, "train")


def test_how_lines_lie_to_each_other(tmp_path: Path) -> None:
    source = tmp_path / "trains.py"
    source.write_text(SOURCE)
    at = {name: site(name, source) for name in "abcdefghik"}
    assert order_of(at["a"], at["b"]) is Order.APART
    assert order_of(at["f"], at["g"]) is Order.APART
    assert order_of(at["h"], at["i"]) is Order.APART
    assert order_of(at["a"], at["c"]) is Order.AFTER
    assert order_of(at["b"], at["c"]) is Order.AFTER, "another statement's body is no alternative to an else"
    assert order_of(at["b"], at["e"]) is Order.AFTER
    assert order_of(at["k"], at["f"]) is Order.BEFORE
    assert order_of(at["a"], at["a"]) is None
    assert comes_to_both(at["a"], at["k"])
    assert not comes_to_both(at["k"], at["a"])
    assert not comes_to_both(at["c"], at["e"]), "it may be passed"
    assert share_a_loop(at["c"], at["d"])
    assert not share_a_loop(at["a"], at["c"])
    assert comes_round_alone(at["c"], at["d"])
    assert not comes_round_alone(at["e"], at["d"]), "it may be passed"
    assert not comes_round_alone(at["d"], at["c"]), "no loop brings it back without the other"


def test_lines_of_different_functions_or_without_a_source_are_not_compared(tmp_path: Path) -> None:
    source = tmp_path / "trains.py"
    source.write_text(SOURCE)
    last = Site(str(source), len(SOURCE.splitlines()), "train")
    assert order_of(site("a", source), last) is None
    assert order_of(site("a", source), Site(str(source), 3, "other")) is None
    gone = Site(str(tmp_path / "gone.py"), 4, "train"), Site(str(tmp_path / "gone.py"), 5, "train")
    assert order_of(*gone) is None
    source.with_name("broken.py").write_text("def train(:\n")
    broken = [Site(str(source.with_name("broken.py")), line, "train") for line in (1, 2)]
    assert order_of(*broken) is None
    assert not share_a_loop(*broken)
