"""Contracts compared: who is at fault, in what, and when nobody can say."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rankdrill.diagnosis import ContractWatch, Finding, FindingKind, Side
from rankdrill.diagnosis.calls.contracts import break_in, may_change
from rankdrill.diagnosis.calls.crossed import crossed_groups
from rankdrill.errors import ContractBroken
from rankdrill.ledger import Board, BoardCall, Post, make_board
from rankdrill.step import NEW_GROUP, Contract, Kind, Site, Step
from rankdrill.worlds import RankOutcome
from tests.worlds.ended import barrier, waits

SUM = Contract("all_reduce", "sum", dtypes=("float32",), sizes=(4,), shown="float32[4]")
MAX = Contract("all_reduce", "max", dtypes=("float32",), sizes=(4,), shown="float32[4]")
BARRIER = Contract("barrier")
CALL = BoardCall(7, 3)


@pytest.fixture
def found(tmp_path: Path) -> Callable[..., Finding | None]:
    """What is found where each rank has posted a contract, None for one that has not come."""

    def find(*contracts: Contract | None, members: tuple[int, ...] = ()) -> Finding | None:
        members = members or tuple(range(len(contracts)))
        (tmp_path / "board").unlink(missing_ok=True)
        make_board(tmp_path / "board", max(members) + 1)
        posts: list[Post] = []
        for rank, contract in zip(members, contracts, strict=True):
            if contract is not None:
                board = Board(tmp_path / "board", rank)
                board.post(CALL, contract, Site("train.py", 10 + rank, "step"))
                posts += board.posted(CALL, [rank])
        return break_in(posts, members, "default", CALL.number)

    return find


Found = Callable[..., Finding | None]


def test_equal_contracts_are_no_finding(found: Found) -> None:
    assert found(SUM, SUM, SUM) is None


def test_the_odd_one_is_the_culprit(found: Found) -> None:
    finding = found(SUM, MAX, SUM, SUM)
    assert finding is not None
    assert (finding.kind, finding.argument, finding.culprits) == (FindingKind.OPERATOR, "reduce op", (1,))
    assert finding.ranks == (1,)
    assert finding.lines == (
        "operator mismatch: rank 1 enters all_reduce #3 on 'default' with reduce op max, at train.py:11 in step",
        "ranks 0, 2, 3 enter all_reduce #3 on 'default' with reduce op sum, "
        "at train.py:10 in step (rank 0), at train.py:12 in step (rank 2), at train.py:13 in step (rank 3)",
    )


def test_several_odd_ones_are_culprits_where_the_others_are_more(found: Found) -> None:
    finding = found(SUM, MAX, SUM, BARRIER, SUM)
    assert finding is not None
    assert finding.kind is FindingKind.CALL_ORDERING, "what is wrong first"
    assert finding.culprits == (1, 3)
    assert finding.lines[0] == "call ordering: rank 3 enters barrier #3 on 'default', at train.py:13 in step"
    assert finding.lines[1].startswith("rank 1 enters all_reduce #3 on 'default' with reduce op max")
    assert len(finding.lines) == 3


@pytest.mark.parametrize(
    "contracts",
    [(SUM, MAX), (SUM, SUM, MAX, MAX), (SUM, MAX, BARRIER), (SUM, SUM, MAX, None), (SUM, MAX, None, None)],
)
def test_without_a_majority_of_all_members_nobody_is_blamed(
    found: Found, contracts: tuple[Contract | None, ...]
) -> None:
    finding = found(*contracts)
    assert finding is not None
    assert finding.culprits == ()
    assert may_change(finding)
    assert "nobody in the majority" in str(finding)
    assert sorted(finding.ranks) == [rank for rank, contract in enumerate(contracts) if contract is not None]


def test_who_has_not_come_changes_no_majority(found: Found) -> None:
    finding = found(SUM, SUM, SUM, MAX, None)
    assert finding is not None
    assert finding.culprits == (3,)
    assert not may_change(finding)


def test_a_root_is_told_by_its_global_rank(found: Found) -> None:
    roots = [Contract("broadcast", root=root, dtypes=("float32",), sizes=(1,)) for root in (0, 0, 1)]
    finding = found(*roots, members=(4, 6, 9))
    assert finding is not None
    assert (finding.kind, finding.culprits) == (FindingKind.ROOT, (9,))
    assert "rank 9 enters broadcast #3 on 'default' with root 6" in finding.lines[0]
    assert "with root 4" in finding.lines[1]


def group(*members: int) -> Contract:
    return Contract(NEW_GROUP, sizes=members, shown=f"ranks={','.join(map(str, members))}")


def test_groups_of_one_number_mix_their_members_up(found: Found) -> None:
    finding = found(group(0, 3), group(1, 2), group(1, 2), group(0, 3))
    assert finding is not None
    assert (finding.kind, finding.argument, finding.culprits) == (FindingKind.GROUP, "members", ())
    assert [side.ranks for side in finding.sides] == [(0, 3), (1, 2)]


def test_of_groups_that_each_makes_for_itself_the_smaller_is_no_more_at_fault(found: Found) -> None:
    finding = found(group(0, 1, 2), group(0, 1, 2), group(0, 1, 2), group(3, 4), group(3, 4))
    assert finding is not None
    assert finding.culprits == ()


def test_who_is_alone_in_a_group_meets_nobody(found: Found) -> None:
    assert found(group(0), group(1), group(2)) is None
    assert found(group(0, 1), group(0, 1), group(2), group(3)) is None


def split(*rows: int, received: tuple[int, ...] = ()) -> Contract:
    return Contract("all_to_all_single", dtypes=("float32",), sends=rows, receives=received or rows, shown=str(rows))


def test_splits_that_fit_are_no_finding(found: Found) -> None:
    assert found(split(1, 2, 3), split(2, 4, 5), split(3, 5, 6)) is None


def test_who_does_not_fit_with_several_is_the_culprit(found: Found) -> None:
    finding = found(split(1, 1, 1), split(1, 1, 1), split(2, 0, 1, received=(1, 1, 1)))
    assert finding is not None
    assert (finding.kind, finding.argument, finding.culprits) == (FindingKind.SIZE, "split", (2,))
    assert "expects 1 elements from rank 2, which sends 2" in finding.lines[1]


def test_two_that_do_not_fit_with_each_other_alone_disagree(found: Found) -> None:
    finding = found(split(1, 2, 1), split(3, 1, 1), split(1, 1, 1))
    assert finding is not None
    assert finding.culprits == ()
    assert [side.ranks for side in finding.sides] == [(0,), (1,)]


def gather(rank: int, mine: int, expected: int = 4) -> Contract:
    here, there = (expected,) * 4 if rank == 0 else (0,) * 4, (mine, 0, 0, 0)
    return Contract("gather", root=0, dtypes=("float32",), sends=there, receives=here, shown=f"float32[{mine}]")


def test_of_a_gather_the_one_that_sends_another_size_than_most(found: Found) -> None:
    assert found(*(gather(rank, 4) for rank in range(4))) is None
    finding = found(gather(0, 4), gather(1, 4), gather(2, 7), gather(3, 4))
    assert finding is not None
    assert finding.culprits == (2,)


# ---------------------------------------------------------------------------------------------------- the watch


def step(contract: Contract, number: int = 0) -> Step:
    return Step(Kind.COLLECTIVE, contract.op, "default", sequence=number, contract=contract)


@pytest.fixture
def watches(tmp_path: Path) -> list[ContractWatch]:
    make_board(tmp_path / "board", 3)
    return [ContractWatch(Board(tmp_path / "board", rank), rank) for rank in range(3)]


GROUP, RANKS = 5, (0, 1, 2)


def test_whoever_comes_to_a_mismatch_is_stopped_there(watches: list[ContractWatch]) -> None:
    watches[0].enter(GROUP, RANKS, 0, step(SUM))
    watches[1].enter(GROUP, RANKS, 1, step(SUM))
    with pytest.raises(ContractBroken, match="rank 2 enters all_reduce #0 on 'default' with reduce op max"):
        watches[2].enter(GROUP, RANKS, 2, step(MAX))


def test_another_group_another_number_and_another_numbering_are_no_business(watches: list[ContractWatch]) -> None:
    watches[0].enter(GROUP, RANKS, 0, step(SUM))
    watches[1].enter(GROUP + 1, RANKS, 1, step(MAX))
    watches[1].enter(GROUP, RANKS, 1, step(MAX, 1))
    watches[1].enter(GROUP, RANKS, 2, step(MAX))  # a body that has its ranks numbered the other way round


def test_after_a_bend_nothing_is_said(watches: list[ContractWatch]) -> None:
    watches[0].enter(GROUP, RANKS, 0, step(SUM))
    watches[0].bend()
    watches[1].enter(GROUP, RANKS, 1, step(MAX))


def test_what_is_taken_back_at_once_was_never_wrong(watches: list[ContractWatch]) -> None:
    watches[0].enter(GROUP, RANKS, 0, step(MAX))
    refused = threading.Timer(0.01, lambda: watches[0].retract(GROUP, step(MAX)))
    refused.start()
    began = time.monotonic()
    watches[1].enter(GROUP, RANKS, 1, step(SUM))
    assert time.monotonic() - began < 10
    refused.join()


# ---------------------------------------------------------------------------------------------------- groups crossed


def crossed(*ranks: RankOutcome) -> Finding | None:
    return crossed_groups(
        {rank.rank: rank.wait for rank in ranks if rank.wait is not None}, [rank.ledger for rank in ranks]
    )


def test_who_took_another_group_than_most(found: Found) -> None:
    row, other = barrier(0, "row"), barrier(0, "column")
    finding = crossed(waits(0, 2, step=row), waits(1, 2, step=row), waits(2, 0, 1, step=other))
    assert finding is not None
    assert (finding.kind, finding.culprits) == (FindingKind.GROUP, (2,))
    assert finding.lines[0] == "group mismatch: rank 2 waits in barrier #0 on 'column'"
    assert finding.lines[1] == "ranks 0, 1 wait in barrier #0 on 'row'"


def test_one_against_one_crossed(found: Found) -> None:
    finding = crossed(waits(0, 1, step=barrier(0, "a")), waits(1, 0, step=barrier(0, "b")))
    assert finding is not None
    assert finding.culprits == ()
    assert finding.ranks == (0, 1)


def test_who_is_in_one_group_alone_is_no_witness() -> None:
    """Of the rows {0, 1, 2} and {3, 4, 5} the second waits for rank 5, which left its row's barrier out."""
    row, everybody = barrier(0, "row"), barrier(0)
    early = [waits(rank, 3, 4, step=everybody) for rank in (0, 1, 2)]
    finding = crossed(*early, waits(3, 5, step=row), waits(4, 5, step=row), waits(5, 3, 4, step=everybody))
    assert finding is not None
    assert finding.culprits == (5,)
    assert [side.ranks for side in finding.sides] == [(5,), (3, 4)]
    # Of rows of two it is one against one.
    finding = crossed(
        waits(0, 2, step=everybody), waits(1, 2, step=everybody), waits(2, 3, step=row), waits(3, 2, step=everybody)
    )
    assert finding is not None
    assert (finding.culprits, finding.ranks) == ((), (2, 3))


def test_where_somebody_else_is_waited_for_no_group_is_wrong() -> None:
    a, b = barrier(0, "a"), barrier(0, "b")
    assert crossed(waits(0, 2, step=a), waits(1, 2, step=b)) is None
    assert crossed(waits(0, 1, step=a), waits(1, step=b)) is None
    assert crossed(waits(0, 1, step=a), waits(1, 0, step=a)) is None
    assert crossed() is None


def test_a_side_lists_few_call_sites() -> None:
    sites = tuple(Site("train.py", line, "step") for line in range(6))
    told = str(Side(tuple(range(6)), "enter barrier #0", sites))
    assert told.count("train.py") == 3
    assert told.endswith(", …")


# ---------------------------------------------------------------------------------------------------- how much is read


class CountedBoard(Board):
    """A board that counts how often its rank looks at what another one has posted."""

    looks = 0

    def differs(self, rank: int, call: BoardCall, contract: Contract, me: int, them: int) -> bool:
        self.looks += 1
        return super().differs(rank, call, contract, me, them)


@pytest.mark.parametrize("ranks", [2, 16, 256])
def test_a_call_takes_no_more_looks_however_many_ranks_there_are(ranks: int, tmp_path: Path) -> None:
    make_board(tmp_path / "board", ranks)
    boards = [CountedBoard(tmp_path / "board", rank) for rank in range(ranks)]
    everybody = tuple(range(ranks))
    for number, contract in enumerate((SUM, BARRIER)):
        for rank, board in enumerate(boards):
            board.looks = 0
            ContractWatch(board, rank).enter(GROUP, everybody, rank, step(contract, number))
        assert max(board.looks for board in boards) <= 3


@pytest.mark.parametrize("ranks", [16, 256])
@pytest.mark.parametrize("odd_is_last", [True, False])
def test_it_is_found_all_the_same(ranks: int, tmp_path: Path, *, odd_is_last: bool) -> None:
    """By the odd one, if it comes last, or by the first that comes behind it."""
    make_board(tmp_path / "board", ranks)
    everybody = tuple(range(ranks))
    order = [rank for rank in everybody if rank != ranks // 2]
    order = [*order, ranks // 2] if odd_is_last else [ranks // 2, *order]
    for rank in order[: len(order) if odd_is_last else 1]:
        watch = ContractWatch(Board(tmp_path / "board", rank), rank)
        odd = rank == ranks // 2
        if odd and odd_is_last:
            with pytest.raises(ContractBroken, match=f"rank {ranks // 2} enters all_reduce #0 on 'default' with"):
                watch.enter(GROUP, everybody, rank, step(MAX))
        else:
            watch.enter(GROUP, everybody, rank, step(MAX if odd else SUM))
    if not odd_is_last:
        last = ContractWatch(Board(tmp_path / "board", order[-1]), order[-1])
        with pytest.raises(ContractBroken):
            last.enter(GROUP, everybody, order[-1], step(SUM))
