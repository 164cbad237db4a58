"""What a call under way works on, changed by other means than torch's functions: it shows where that is waited for."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.native import LANE_VARIABLE

DEADLINE_S = 60.0
LARGE = 1 << 20
READ_S = 0.3  # in which a thread comes to read a few bytes, on any machine


def gathered(data: torch.Tensor) -> list[torch.Tensor]:
    return [torch.empty_like(data) for _ in range(dist.get_world_size())]


def a_view_made_long_before() -> None:
    data = torch.ones(8)
    view = data.numpy()
    work = dist.all_gather(gathered(data), data, async_op=True)
    if dist.get_rank() == 1:
        view[3] = 5.0  # odd
    work.wait()


def an_array_that_a_tensor_was_made_of() -> None:
    import numpy as np

    staged = np.ones(LARGE, dtype=np.float32)
    data, out = torch.from_numpy(staged), torch.empty(LARGE // 2)
    work = dist.reduce_scatter_tensor(out, data, async_op=True)
    if dist.get_rank() == 1:
        staged *= 2.0  # odd
    work.wait()


def a_block_that_is_sent() -> None:
    block = torch.ones(8)
    if dist.get_rank() == 0:
        dist.recv(block, 1)
        return
    for _ in range(1):
        sent = dist.isend(block, 0)
        assert sent is not None
        block.numpy().fill(7.0)  # odd
        sent.wait()


def in_the_next_round() -> None:
    """The line that writes lies above the one that issues."""
    data, under_way = torch.ones(8), list[dist.Work]()
    view = data.numpy()
    for step in range(3):
        if under_way:
            if dist.get_rank() == 1 and step == 2:
                view[:] = step  # odd
            under_way.pop().wait()
        if step < 2:
            under_way += [dist.all_gather(gathered(data), data, async_op=True)]


def a_storage_that_is_resized() -> None:
    data = torch.ones(8)
    work = dist.all_gather(gathered(data), data, async_op=True)
    if dist.get_rank() == 1:
        time.sleep(READ_S)  # gloo's thread reads what it was given: nothing now, and would end the process
        data.untyped_storage().resize_(0)  # odd
    work.wait()


def a_result_that_is_given_other_memory() -> None:
    data = torch.ones(8)
    work, before = dist.all_reduce(data, async_op=True), data.detach()
    if dist.get_rank() == 1:
        data.data = torch.zeros(8)  # odd
    work.wait()
    del before  # what the backend writes into has to be there


MISTAKES = [
    a_view_made_long_before,
    an_array_that_a_tensor_was_made_of,
    a_block_that_is_sent,
    in_the_next_round,
    a_storage_that_is_resized,
    a_result_that_is_given_other_memory,
]


def line_of(body: Callable[[], None]) -> int:
    lines, first = inspect.getsourcelines(body)
    return first + next(number for number, line in enumerate(lines) if "# odd" in line)


@pytest.mark.parametrize("body", MISTAKES)
def test_who_changed_it_is_named_with_the_line(two: World, body: Callable[[], None]) -> None:
    outcome = two.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.INPUT_HAZARD, (1,))
    (site,) = finding.sides[0].sites
    assert site is not None
    assert site.line == line_of(body)
    assert "as shows in line" in finding.sides[0].did


@pytest.mark.parametrize("lane", ["0", ""])
def test_both_lanes_see_it(lane: str) -> None:
    code = (
        "from rankdrill import World; from tests.worlds.test_past_torch import a_view_made_long_before as body\n"
        f"with World(2) as world: print(world.run(body, deadline={DEADLINE_S}).culprits)"
    )
    environment = os.environ | {LANE_VARIABLE: lane}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "(1,)"


def of_two_lines_that_write_nobody_can_say_which() -> None:
    data = torch.ones(8)
    view = data.numpy()
    work = dist.all_gather(gathered(data), data, async_op=True)
    if dist.get_rank() == 1:
        view[3] = 5.0
    if dist.get_rank() == 2:
        view[4] = 5.0
    work.wait()  # odd


def test_of_two_lines_the_one_that_waits_is_told(two: World) -> None:
    body = of_two_lines_that_write_nobody_can_say_which
    (finding,) = two.run(body, deadline=DEADLINE_S).findings
    (site,) = finding.sides[0].sites
    assert site is not None
    assert site.line == line_of(body)


def written_after_it_was_waited_for() -> None:
    data = torch.ones(8)
    view = data.numpy()
    for step in range(3):
        work = dist.all_gather(gathered(data), data, async_op=True)
        work.wait()
        view[:] = step


def two_buffers_in_turn() -> None:
    blocks = [torch.ones(8), torch.ones(8)]
    views = [block.numpy() for block in blocks]
    before = None
    for step in range(5):
        views[step % 2][:] = step
        work = dist.all_gather(gathered(blocks[0]), blocks[step % 2], async_op=True)
        if before is not None:
            before.wait()
        before = work
    assert before is not None
    before.wait()


def its_part_of_the_result_is_what_it_gives() -> None:
    """The backend writes there itself."""
    whole = torch.full((8,), float(dist.get_rank()))
    dist.all_gather_into_tensor(whole, whole.chunk(2)[dist.get_rank()], async_op=True).wait()
    dist.reduce_scatter_tensor(whole.chunk(2)[dist.get_rank()], whole, async_op=True).wait()


def read_through_numpy() -> None:
    data = torch.ones(8)
    view = data.numpy()
    work = dist.all_gather(gathered(data), data, async_op=True)
    assert view.sum() == 8.0
    work.wait()


def given_up_once_it_was_waited_for() -> None:
    data = torch.ones(8)
    work = dist.all_gather(gathered(data), data, async_op=True)
    work.wait()
    data.untyped_storage().resize_(0)


def something_else_in_the_same_storage() -> None:
    both = torch.ones(16)
    view = both.numpy()
    work = dist.all_gather(gathered(both[:8]), both[:8], async_op=True)
    view[8:] = 3.0
    work.wait()


@pytest.mark.parametrize(
    "body",
    [
        written_after_it_was_waited_for,
        two_buffers_in_turn,
        its_part_of_the_result_is_what_it_gives,
        read_through_numpy,
        given_up_once_it_was_waited_for,
        something_else_in_the_same_storage,
    ],
)
def test_what_may_be_done_is_no_finding(two: World, body: Callable[[], None]) -> None:
    assert two.run(body, deadline=DEADLINE_S).findings == ()
