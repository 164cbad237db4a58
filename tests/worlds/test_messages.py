"""Worlds follow what ranks send each other: one finding for each mistake, none for what is right."""

from __future__ import annotations

import linecache
import time
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import Finding, FindingKind, Side
from rankdrill.errors import ContractBroken, RankLeft
from rankdrill.faults import Plan
from rankdrill.worlds import Verdict
from tests.torch_can import Can, needs
from tests.worlds import message_mistakes as programs
from tests.worlds.conftest import OF_TRAINING

DEADLINE_S = 60.0
ODD = 2
EARLY_S = 20.0  # far below the deadline, for any machine
SIZES = (2, 3, 4)
# Of two it is no mistake at all, both neighbours being one.
NO_MISTAKE_OF_TWO = {programs.sends_the_other_way, programs.awaits_the_other_one}


@pytest.fixture(scope="module", params=SIZES)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with World(request.param, preload=OF_TRAINING) as made:
        yield made


def name_of(body: object) -> str:
    return str(getattr(body, "__name__", body))


def marks(side: Side) -> str:
    """How the line that a rank was at ends."""
    (site,) = side.sites
    assert site is not None
    return linecache.getline(site.file, site.line).rstrip().partition("  # ")[2]


def assert_odd(finding: Finding, odd: int) -> None:
    assert finding.culprits == finding.sides[0].ranks == (odd,)
    assert marks(finding.sides[0]) in ("odd", "odd # other", "left out")
    assert str(finding).startswith(f"{finding.kind}: rank {odd} ")


def assert_undecided(finding: Finding) -> None:
    """One against one: nobody else says which of the two is right."""
    assert finding.culprits == ()
    assert {side.ranks for side in finding.sides} == {(0,), (1,)}


@pytest.mark.parametrize("body", programs.MISMATCHES, ids=name_of)
def test_what_is_sent_is_not_what_is_expected(world: World, body: programs.Body) -> None:
    outcome = world.run(body, world.n - 1, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.argument) == programs.MISMATCHES[body]
    assert outcome.verdict is Verdict.BROKEN
    if world.n == 2:
        assert_undecided(finding)
        assert outcome.culprits == (0, 1)
    else:
        assert_odd(finding, world.n - 1)
        assert "other" in marks(finding.sides[1])
        assert outcome.culprits == (world.n - 1,)
    assert any(isinstance(rank.error, ContractBroken) for rank in outcome.ranks)
    assert outcome.elapsed < EARLY_S


@pytest.mark.parametrize("body", programs.MISTAKES, ids=name_of)
def test_a_message_that_is_never_matched(world: World, body: programs.Body) -> None:
    odd = world.n - 1
    outcome = world.run(body, odd, deadline=DEADLINE_S)
    if world.n == 2 and body in NO_MISTAKE_OF_TWO:
        assert outcome.ok, outcome.summary()
        return
    (finding,) = outcome.findings
    assert (finding.kind, finding.argument) == ("unmatched message", programs.MISTAKES[body])
    assert outcome.elapsed < EARLY_S
    if world.n == 2 and finding.argument == "tag":
        assert_undecided(finding)
        return
    assert_odd(finding, odd)
    assert outcome.culprits == (odd,)
    if body is not programs.sends_outside:
        assert outcome.verdict is Verdict.HANG
        assert odd not in finding.sides[-1].ranks
        assert "other" in marks(finding.sides[-1]) or finding.argument.startswith("extra")


@pytest.mark.parametrize("body", programs.DEADLOCKS, ids=name_of)
def test_each_waits_for_the_next(world: World, body: Callable[[], None]) -> None:
    outcome = world.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.DEADLOCK, ())
    assert outcome.culprits == tuple(range(world.n))
    assert outcome.victims == ()
    assert outcome.elapsed < EARLY_S
    chain, *sides = finding.lines
    assert chain.startswith("deadlock: rank 0 waits for rank ")
    assert chain.endswith(", which waits for rank 0")
    assert chain.count("waits for") == len(sides) == world.n
    assert all(body.__name__ in side for side in sides)


def test_two_messages_received_in_another_order_than_before(two: World) -> None:
    def body() -> None:
        for turn in range(3):
            for tag in (1, 2) if turn < 2 or not dist.get_rank() else (2, 1):
                if dist.get_rank():
                    dist.recv(torch.ones(1), 0, tag=tag)
                else:
                    dist.send(torch.ones(1), 1, tag=tag)

    outcome = two.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.DEADLOCK, (1,))
    assert finding.sides[0].did == "waits for a message from rank 0 (tag 2)"
    assert finding.sides[1].did == "waits for rank 1 to receive float32[1] (tag 1)"


@pytest.mark.parametrize("body", programs.LOOSE, ids=name_of)
def test_a_message_that_nobody_waits_for(world: World, body: programs.Body) -> None:
    """That it is never matched either is what comes of it, or a second mistake."""
    odd = world.n - 1
    outcome = world.run(body, odd, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert finding.kind is FindingKind.REQUEST_LEAK
    assert outcome.culprits == finding.culprits == (odd,)
    assert marks(finding.sides[0]) == "odd"
    assert not outcome.ok
    assert world.run(programs.pass_on).ok, "on fresh ranks"


@pytest.mark.parametrize("body", programs.TWINS, ids=name_of)
def test_what_is_right_is_no_finding(world: World, body: programs.Body) -> None:
    outcome = world.run(body, world.n - 1, deadline=DEADLINE_S)
    assert outcome.findings == ()
    assert outcome.ok, outcome.summary()


def test_a_pipeline_of_torchs_own_is_right(two: World) -> None:
    def pipelined() -> int:
        from torch.distributed import pipelining

        torch.manual_seed(0)
        rank, losses = dist.get_rank(), list[torch.Tensor]()
        stage = pipelining.PipelineStage(torch.nn.Linear(4, 4), rank, 2, torch.device("cpu"))
        steps = pipelining.Schedule1F1B(stage, 4, loss_fn=torch.nn.functional.mse_loss)
        for _ in range(2):
            if rank:
                steps.step(target=torch.zeros(8, 4), losses=losses)
            else:
                steps.step(torch.ones(8, 4))
        return len(losses)

    needs(Can.PIPELINE)
    assert two.run(pipelined, deadline=2 * DEADLINE_S).unwrap() == [0, 4]


@pytest.mark.parametrize("body", programs.TWINS, ids=name_of)
def test_what_is_right_stays_so_on_warm_ranks(four: World, body: programs.Body) -> None:
    for _ in range(3):
        assert four.run(body, 1, deadline=DEADLINE_S).ok


def test_the_first_message_of_two_ranks_is_a_disagreement(two: World) -> None:
    def body() -> None:
        if dist.get_rank():
            dist.recv(torch.ones(4), 0)
        else:
            dist.send(torch.ones(3, dtype=torch.int64), 1)

    outcome = two.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert finding.culprits == ()
    assert finding.step.endswith(" from rank 0 to rank 1 (tag 0) on 'default'")
    assert [side.did for side in finding.sides] == [
        "sends int64[3] to rank 1 (tag 0)",
        "expects float32[4] from rank 0 (tag 0)",
    ]
    assert "datatype mismatch, nobody in the majority: rank 0 sends int64[3]" in outcome.summary()


def test_lists_of_objects_of_another_length(two: World) -> None:
    def body() -> None:
        if dist.get_rank():
            dist.recv_object_list([None] * 3, 0)
        else:
            dist.send_object_list([1, 2], 1)

    (finding,) = two.run(body, deadline=DEADLINE_S).findings
    assert finding.kind is FindingKind.SIZE
    assert "sends int64[2] to rank 1 (tag 0, by send_object_list)" in str(finding)


def everybody_to_everybody(sends_more: int, sends_less: int) -> None:
    """In one batch: the last of them sends the first one a message more, or none."""
    me, size = dist.get_rank(), dist.get_world_size()
    exchanges = []
    for peer in range(size):
        if peer != me:
            exchanges.append(dist.P2POp(dist.irecv, torch.zeros(3), peer))
            if not (me == sends_less and peer == 0):
                exchanges.append(dist.P2POp(dist.isend, torch.ones(3), peer))
    if me == sends_more:
        exchanges.append(dist.P2POp(dist.isend, torch.ones(3), 0))
    for work in dist.batch_isend_irecv(exchanges):
        work.wait()


@pytest.mark.parametrize("sends", ["more", "less"])
def test_in_a_batch_the_one_that_lost_count_is_to_blame(four: World, sends: str) -> None:
    odd = [3 if sends == each else -1 for each in ("more", "less")]
    (finding,) = four.run(everybody_to_everybody, *odd, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.UNMATCHED, (3,))
    assert "from rank 3 to rank 0" in finding.step


def a_round_less(odd: int) -> None:
    """Two that answer each other; what is sent has to be taken before anything comes back."""
    value = torch.ones(4)
    for _ in range(3 if dist.get_rank() == odd else 4):
        if dist.get_rank() == 0:
            dist.send(value, 1)
            dist.recv(value, 1)
        else:
            dist.recv(value, 0)
            dist.send(value, 0)
    dist.barrier()


def test_of_two_nobody_knows_who_has_done_a_round_less(two: World) -> None:
    (finding,) = two.run(a_round_less, 1, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits, finding.ranks) == (FindingKind.UNMATCHED, (), (0, 1))


def push(to: int) -> None:
    dist.send(torch.ones(2), to)


def up_a_tree(odd: int, by_helper: bool) -> None:
    """Each waits for its children, and sends to its parent; one sends to its uncle."""
    me = dist.get_rank()
    for child in (2 * me + 1, 2 * me + 2):
        if child < 4:
            dist.recv(torch.zeros(2), child)
    if me and by_helper:
        push(2 if me == odd else (me - 1) // 2)
    elif me:
        dist.send(torch.ones(2), 2 if me == odd else (me - 1) // 2)


@pytest.mark.parametrize("by_helper", [False, True])
def test_in_a_circle_that_nothing_could_have_undone_one_has_the_wrong_address(four: World, by_helper: bool) -> None:
    """Rank 0 waits for 1, 1 for 3, which sends to 2, and 2 sends to 0: but 2 would never come to receive from 3."""
    (finding,) = four.run(up_a_tree, 3, by_helper, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.argument, finding.culprits) == (FindingKind.UNMATCHED, "peer", (3,))
    assert finding.sides[0].did.startswith("sends float32[2] to rank 2")


def to_two_in_another_order() -> None:
    """Rank 1 sends to 2 first, and 2 waits for 0 first, which waits for 1: any other order would do."""

    def take(source: int) -> None:
        dist.recv(torch.zeros(1 << 18), source)

    def give(target: int) -> None:
        dist.send(torch.ones(1 << 18), target)

    me = dist.get_rank()
    if me == 0:
        take(1)
        give(2)
    elif me == 1:
        give(2)
        give(0)
    elif me == 2:
        take(0)
        take(1)


def test_a_circle_by_order_alone_stays_one(four: World) -> None:
    (finding,) = four.run(to_two_in_another_order, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.DEADLOCK, ())


def test_who_only_waits_in_a_collective_will_not_send(two: World) -> None:
    def body() -> None:
        if dist.get_rank():
            dist.recv(torch.ones(4), 0)
        dist.barrier()

    outcome = two.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.argument, finding.culprits) == ("unmatched message", "missing send", ())
    assert [side.did for side in finding.sides] == [
        "waits for a message from rank 0 (tag 0)",
        "waits in barrier #0 on 'default' without sending to rank 1 (tag 0)",
    ]


def test_who_returned_says_what_it_did_last(two: World) -> None:
    def body() -> None:
        dist.all_reduce(torch.ones(1))
        if dist.get_rank():
            dist.recv(torch.ones(4), 0)

    outcome = two.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (outcome.culprits, outcome.victims) == ((0,), (1,))
    assert finding.lines[0].startswith(
        "unmatched message: rank 0 returned without sending to rank 1 (tag 0) after all_reduce #0 on 'default', at "
    ), "it has never sent: no line is known where it should have"
    with pytest.raises(ExceptionGroup) as caught:
        outcome.unwrap()
    assert isinstance(caught.value.exceptions[0], RankLeft)


def test_a_receive_from_anybody_when_nobody_is_left(four: World) -> None:
    def body() -> None:
        rank = dist.get_rank()
        if rank:
            dist.send(torch.ones(1), 0)
        else:
            for _ in range(4):
                dist.recv(torch.ones(1))

    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.argument, finding.ranks) == ("unmatched message", "extra recv", (0,))
    assert outcome.elapsed < EARLY_S


def test_a_group_of_some_ranks_is_told_in_ranks_of_the_world(four: World) -> None:
    def body() -> None:
        group = dist.new_group([1, 3])
        if dist.get_rank() == 3:
            dist.recv(torch.ones(1), 1, group=group)

    (finding,) = four.run(body, deadline=DEADLINE_S).findings
    assert finding.culprits == (1,)
    assert finding.sides[1].ranks == (3,)
    assert "waits for a message from rank 1 (tag 0) on " in finding.sides[1].did


@pytest.mark.nightly
def test_a_tag_that_is_new_on_ranks_that_have_sent_much(two: World) -> None:
    def much() -> None:
        for _ in range(2100):  # more than a ledger holds
            programs.pass_on()

    def body() -> None:
        if dist.get_rank():
            dist.recv(torch.ones(4), 0, tag=9)

    assert two.run(much, deadline=DEADLINE_S).ok
    outcome = two.run(body, deadline=DEADLINE_S)
    assert outcome.elapsed < EARLY_S
    assert outcome.culprits == (0,)


def test_a_rank_that_sleeps_may_still_send(two: World) -> None:
    def body() -> None:
        if dist.get_rank():
            dist.recv(torch.ones(1), 0)
        else:
            dist.isend(torch.ones(1), 1, tag=5)
            time.sleep(1000)

    outcome = two.run(body, deadline=2)
    assert outcome.findings == ()
    assert outcome.culprits[0] == 0


def test_what_a_plan_leads_to_is_no_finding(four: World) -> None:
    outcome = four.run(programs.sizes_in_turn, 0, plan=Plan.parse("rank 1: skip at collective.send #2"), deadline=5)
    assert outcome.findings == (), outcome.summary()


def test_a_send_that_was_skipped_gives_its_number_to_the_next(two: World) -> None:
    def body() -> None:
        if dist.get_rank():
            dist.recv(torch.ones(1), 0)
        else:
            for _ in range(2):
                dist.send(torch.ones(1), 1)

    outcome = two.run(body, plan=Plan.parse("rank 0: skip at collective.send #1"), deadline=DEADLINE_S)
    assert outcome.ok, outcome.summary()
    sent = [record.step.message for record in outcome.ranks[0].ledger if record.step.message is not None]
    first, second = sent
    assert first.number == second.number


def test_a_message_in_the_next_run_does_not_meet_one_of_the_last(two: World) -> None:
    def sends() -> None:
        if not dist.get_rank():
            dist.isend(torch.ones(2), 1)

    births = two.births
    assert not two.run(sends).ok
    assert two.run(programs.pass_on).ok
    assert two.births > births


def hand_down(sends: int, expects: int) -> None:
    """From rank 0 to 1 and on to 2; what rank 1 `sends`, rank 2 `expects`."""
    rank = dist.get_rank()
    if rank:
        dist.recv(torch.ones(2 if rank == 1 else expects), rank - 1)
    if rank < 2:
        dist.send(torch.ones(sends if rank == 1 else 2), rank + 1)


def test_what_an_earlier_run_sent_says_nothing_of_this_one() -> None:
    with World(3) as three:
        assert three.run(hand_down, 2, 2).ok
        births = three.births
        (finding,) = three.run(hand_down, 3, 2, deadline=DEADLINE_S).findings
        assert three.births == births  # on the ranks of that run
    assert (finding.kind, finding.culprits) == ("size mismatch", ())
    assert finding.step == "message #0 from rank 1 to rank 2 (tag 0) on 'default'"


def gives_up_early(odd: int) -> None:
    """Rank 0 sends to rank 1, and from another line to rank 2, which has returned."""
    rank = dist.get_rank()
    if rank == 0:
        dist.send(torch.ones(2), 1)
    if rank == 1:
        dist.recv(torch.ones(2), 0)
    dist.barrier()  # last
    if rank == odd:
        return
    if rank == 0:
        dist.send(torch.ones(2), 2)
    if rank == 2:
        dist.recv(torch.ones(2), 0)


def test_where_others_received_another_message_is_not_where_one_was_left_out(four: World) -> None:
    (finding,) = four.run(gives_up_early, 2, deadline=DEADLINE_S).findings
    assert finding.culprits == (2,)
    assert [marks(side) for side in finding.sides if side.ranks == (2,)] == ["last"]


def test_without_contracts_the_backend_does_what_it_does() -> None:
    def body() -> float:
        tensor = torch.zeros(4)
        if dist.get_rank():
            dist.recv(tensor, 0)
        else:
            dist.send(torch.ones(3), 1)
        return float(tensor.sum())

    with World(2, contracts=False) as plain:
        assert plain.run(body).unwrap() == [0, 3]


def one_is_not_told_to_stop() -> None:
    rank, task = dist.get_rank(), torch.ones(1)
    if rank == 0:
        for worker in (1, 2, 3):
            for _ in range(2):
                dist.send(task, worker)
            if worker != ODD:
                dist.send(-task, worker)  # odd
        dist.barrier()
        return
    while task.item() > 0:
        dist.recv(task, 0)  # other
    dist.barrier()


def test_of_a_message_left_out_the_line_is_that_of_its_turn(four: World) -> None:
    outcome = four.run(one_is_not_told_to_stop, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.UNMATCHED, (0,))
    assert marks(finding.sides[0]) == "odd"
    assert marks(finding.sides[-1]) == "other"


def sends_its_rows_before_their_count() -> None:
    """From a line of its own; what a master takes, all its workers send."""
    rank, rows, count = dist.get_rank(), torch.ones(5), torch.tensor([5])
    if rank == 0:
        for worker in (1, 2, 3):
            dist.recv(count, worker)  # other
            dist.recv(rows, worker)
    elif rank == ODD:
        dist.send(rows, 0)  # odd
        dist.send(count, 0)
    else:
        dist.send(count, 0)
        dist.send(rows, 0)


def test_of_what_a_master_takes_all_its_workers_tell(four: World) -> None:
    (finding,) = four.run(sends_its_rows_before_their_count, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.DATATYPE, (ODD,))
    assert [marks(side) for side in finding.sides] == ["odd", "other"]


def one_worker_hears_no_end() -> None:
    """Jobs and their results under one tag: of how many go out the other workers tell, not what comes back."""
    rank, job = dist.get_rank(), torch.ones(1)
    if rank == 0:
        for _ in range(3):
            for worker in (1, 2, 3):
                dist.send(torch.ones(1), worker)
                dist.recv(job, worker)
        for worker in (1, 2, 3):
            if worker != ODD:
                dist.send(-torch.ones(1), worker)
    else:
        while True:
            dist.recv(job, 0)  # other
            if job.item() < 0:
                break
            dist.send(job * 2, 0)
    dist.barrier()


def test_of_a_master_all_its_workers_tell_how_much_it_sends(four: World) -> None:
    (finding,) = four.run(one_worker_hears_no_end, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.UNMATCHED, (0,))
    assert marks(finding.sides[-1]) == "other"


def both_receive_in_the_last_turn() -> None:
    rank, ball = dist.get_rank(), torch.ones(1)
    if rank > 1:
        return
    for turn in range(3):
        if turn == 2 or rank == 1:
            dist.recv(ball, 1 - rank)  # odd
            dist.send(ball, 1 - rank)
        else:
            dist.send(ball, 1 - rank)
            dist.recv(ball, 1 - rank)


def test_who_comes_to_a_receive_before_its_send_has_not_left_it_out(four: World) -> None:
    (finding,) = four.run(both_receive_in_the_last_turn, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.DEADLOCK, ()), "by order, which is as much the other's"
    assert marks(finding.sides[0]) == "odd"
