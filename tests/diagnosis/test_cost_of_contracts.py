"""What a contract costs does not grow with the ranks: each call is one post, and a look at three others at most."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rankdrill.diagnosis.watch import ContractWatch
from rankdrill.ledger import Board, make_board
from rankdrill.step import Contract, Kind, Step

CALLS = 20
SUM = Contract("all_reduce", "sum", dtypes=("float32",), sizes=(4,), shown="float32[4]")


class Counting(Board):
    """A board that counts what is asked of it."""

    posts = looks = 0

    def post(self, *args: Any) -> int | None:
        self.posts += 1
        return super().post(*args)

    def differs(self, *args: Any) -> bool:
        self.looks += 1
        return super().differs(*args)


@pytest.mark.parametrize("ranks", [4, 64, 1024])
def test_a_collective_is_one_post_and_three_looks_at_most(tmp_path: Path, ranks: int) -> None:
    make_board(tmp_path / "board", ranks)
    boards = [Counting(tmp_path / "board", rank) for rank in (ranks // 2, 0, ranks - 1)]
    watches = [(ContractWatch(board, board._rank or 0), board._rank or 0) for board in boards]
    for number in range(CALLS):
        step = Step(Kind.COLLECTIVE, "all_reduce", "default", sequence=number, contract=SUM, digest=SUM.digest)
        for watch, rank in watches:
            watch.enter(7, range(ranks), rank, step)
    for board in boards:
        assert board.posts == CALLS
        assert 0 < board.looks <= 3 * CALLS
