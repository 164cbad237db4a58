"""How long a failure is on the screen, however many ranks have part in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

RANKS = 40
MOST_LINES = 40
BODIES = {
    "each with its own value": "assert dist.get_rank() < 5",
    "some raise and others wait": """
    if dist.get_rank() % 7 == 3:
        raise ValueError(f"rank {dist.get_rank()} has no data")
    dist.all_reduce(torch.ones(1))""",
    "one is killed": """
    if dist.get_rank() == 5:
        os.kill(os.getpid(), 9)
    dist.all_reduce(torch.ones(1))""",
    "each waits for the next": "dist.recv(torch.ones(1), (dist.get_rank() + 1) % dist.get_world_size())",
    "three sizes": "dist.all_reduce(torch.ones(dist.get_rank() % 3 + 1))",
}


NIGHTLY = (
    "each with its own value",
    "each waits for the next",
    "three sizes",
    "one is killed",
    "some raise and others wait",
)


@pytest.mark.parametrize(
    "body",
    [pytest.param(body, id=name, marks=[pytest.mark.nightly] * (name in NIGHTLY)) for name, body in BODIES.items()],
)
def test_it_is_a_screen_and_not_a_wall(run: Run, body: str) -> None:
    ran = run(f"import os\n@pytest.mark.ranks({RANKS}, deadline=60)\ndef test_it(rank):\n    {body.strip()}\n")
    lines = ran.failure("test_it").splitlines()
    assert 0 < len(lines) <= MOST_LINES, "\n".join(lines)


@pytest.mark.nightly
def test_who_suffers_alike_has_one_line(run: Run) -> None:
    body = BODIES["some raise and others wait"]
    ran = run(f"@pytest.mark.ranks({RANKS}, deadline=60)\ndef test_it(rank):\n{body}\n")
    told = ran.failure("test_it").splitlines()
    (victims,) = [line for line in told if " wait in " in line]
    assert victims.startswith("  ranks 0-2, 4-9, 11-16, 18-23, 25-30, 32-37, 39 wait in collective.all_reduce #0 on")
    (rest,) = [line for line in told if line.startswith("… and rank")]
    assert rest.endswith(" likewise, with values of its own")
