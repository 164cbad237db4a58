"""How the findings of torch's analyzer of flight recorder dumps are read."""

from __future__ import annotations

import pytest
from benchmarks.cataloguing.flight_reading import read_with_dumps
from benchmarks.cataloguing.flight_seam import Mismatch
from benchmarks.cataloguing.reading import Ended, read

from tests.catalogue.programs import Rank, mistake
from tests.catalogue.scoring import Judged, Verdict


def body(rank: Rank) -> None:
    assert rank.index != 1  # culprit


ODD_ONE = mistake("missing call", culprits=(1,), ranks=3)(body)
LINE = body.__code__.co_firstlineno + 1
STACK = f"all_reduce at distributed_c10d.py:3245\nbody at {ODD_ONE.file}:{LINE}"
OTHER_STACK = f"all_reduce at distributed_c10d.py:3245\nbody at {ODD_ONE.file}:{LINE + 1}"
HUNG = [Ended(None, "")] * 3
WORLD = frozenset({0, 1, 2})
TYPE, SIZE, DTYPE = "COLLECTIVE_TYPE_MISMATCH", "SIZE_OR_SYNTAX_MISMATCH", "COLLECTIVE_DTYPE_MISMATCH"


def verdict(*found: Mismatch, ended: list[Ended] = HUNG) -> Verdict:
    return read_with_dumps(ODD_ONE, ended, 1.0, found, "")


def differs(*ranks: int, kind: str = TYPE, expected: frozenset[int] = WORLD) -> Mismatch:
    """Those of `ranks` are called culprits, at `LINE`; the rest are at the line after it."""
    errors, frames = dict.fromkeys(ranks, kind), dict.fromkeys(ranks, STACK)
    return Mismatch("0", expected, errors=errors, frames=frames, shown=OTHER_STACK)


def test_a_culprit_is_accused_at_its_line() -> None:
    said = verdict(differs(1))
    assert Judged(ODD_ONE, said).strict
    assert said.lines == {LINE}
    assert said.kind is None


def test_where_most_are_culprits_the_one_they_were_compared_with_is_accused() -> None:
    said = verdict(differs(1, 2))
    assert said.ranks == {0}
    assert said.lines == {LINE + 1}
    assert said.accuses


def test_where_half_are_culprits_nobody_is_accused() -> None:
    said = verdict(differs(1, expected=frozenset({0, 1})))
    assert said.ranks == {0, 1}
    assert said.lines == {LINE, LINE + 1}
    assert not said.accuses


def test_whoever_does_not_join_is_accused_at_the_line_where_the_others_are() -> None:
    assert Judged(ODD_ONE, verdict(Mismatch("0", WORLD, absent=frozenset({1}), shown=STACK))).strict
    assert verdict(Mismatch("0", WORLD, absent=frozenset({1, 2}), shown=STACK)).ranks == {0}


@pytest.mark.parametrize(("told", "kind"), [(SIZE, "size mismatch"), (DTYPE, "datatype mismatch"), (TYPE, None)])
def test_kinds_that_are_told_apart(told: str, kind: str | None) -> None:
    assert verdict(differs(1, kind=told)).kind == kind


def test_ranks_that_differ_in_several_ways_are_of_no_kind() -> None:
    found = Mismatch("0", frozenset(range(5)), errors={1: SIZE, 2: DTYPE})
    assert verdict(found).kind is None


def test_of_a_group_the_first_mismatch_counts() -> None:
    said = verdict(differs(1), differs(2), differs(2))
    assert said.ranks == {1}
    assert said.findings == 1


def test_of_several_groups_whoever_is_named_most_often_is_accused() -> None:
    in_pairs = [Mismatch(group, frozenset({1, other}), absent=frozenset({1})) for group, other in (("1", 0), ("2", 2))]
    assert verdict(Mismatch("0", WORLD, absent=frozenset({2})), *in_pairs).ranks == {1}


def test_where_groups_name_different_ranks_nobody_is_accused() -> None:
    said = verdict(Mismatch("0", WORLD, absent=frozenset({1})), Mismatch("1", WORLD, absent=frozenset({2})))
    assert said.ranks == {1, 2}
    assert not said.accuses


def test_without_its_dump_a_rank_is_accused_but_the_call_shows_no_line() -> None:
    said = verdict(Mismatch("0", WORLD, undumped=frozenset({1}), shown=STACK))
    assert said.ranks == {1}
    assert not said.lines


def test_what_is_decided_counts_for_more() -> None:
    undecided, decided = Mismatch("0", WORLD, undumped=frozenset({2})), Mismatch("1", WORLD, absent=frozenset({1}))
    assert verdict(undecided, decided).ranks == {1}


def test_the_traceback_of_the_accused_is_seen_too() -> None:
    raised = Ended(1, f'  File "{ODD_ONE.file}", line {LINE}, in body\nKeyError: 1\n')
    found = Mismatch("0", WORLD, absent=frozenset({1}), shown=OTHER_STACK)
    assert verdict(found, ended=[HUNG[0], raised, HUNG[0]]).lines == {LINE, LINE + 1}


def test_where_the_analyzer_finds_nothing_it_is_as_with_plain_gloo() -> None:
    ended = [Ended(None, ""), Ended(1, "KeyError: 1\n"), Ended(None, "")]
    said, plain = verdict(ended=ended), read(ODD_ONE, ended, 1.0)
    assert (said.ranks, said.kind, said.findings) == (plain.ranks, plain.kind, plain.findings)


def test_what_neither_fails_nor_hangs_is_not_noticed() -> None:
    assert not verdict(differs(1), ended=[Ended(0, "")] * 3).noticed
