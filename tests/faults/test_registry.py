"""The strikes declare themselves well, and the documentation lists them as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rankdrill.boundary import files, memory, stores
from rankdrill.boundary.methods import METHODS
from rankdrill.faults import ENDING, FAMILIES, OPS, STRIKES, Strike, When, domain
from rankdrill.faults.steps import MPI_OPS
from rankdrill.faults.strike import around
from rankdrill.step import FILE_LOCKS, JOINS_STORE, Kind

DOCS = Path(__file__).parents[2] / "docs" / "faults.md"


def row(strike: type[Strike]) -> str:
    """The row of the documentation's table for one strike."""
    arguments = ", ".join(map(str, strike.arguments))
    called = f"{strike.name}({arguments})" if arguments else strike.name
    return f"| `{called}` | {strike.does} | `{domain(strike)}` | {strike.seen} |"


@pytest.mark.parametrize("strike", STRIKES.values(), ids=list(STRIKES))
def test_a_strike_declares_itself(strike: type[Strike]) -> None:
    assert strike.name.isidentifier()
    assert strike.does.endswith(".")
    assert strike.seen.endswith((".", "`"))
    assert "|" not in strike.does + strike.seen
    assert all(ops and ops <= OPS[kind] for steps in strike.on.values() for kind, ops in steps.items())
    for argument in strike.arguments:
        assert argument.default is None or argument.least <= argument.default <= argument.most


def test_what_a_strike_does_not_say_follows_from_what_it_says() -> None:
    class Unplaced(Strike):
        """Shared by several, and itself at no step."""

    class Placed(Unplaced):
        does = "Something."
        on = around({Kind.FILE: frozenset({"open"})})

    class Described(Placed):
        """At length."""

    assert Placed.when == (When.BEFORE, When.AFTER)
    assert [strike.__doc__ for strike in (Placed, Described)] == ["Something.", "At length."]


def test_the_documentation_lists_every_strike() -> None:
    text = DOCS.read_text().split("\n## Strikes\n")[1]
    wanted = [row(strike) for family in FAMILIES.values() for strike in family]
    found = [line for line in text.splitlines() if line.startswith("| `")]
    assert found == wanted, "write this into docs/faults.md:\n" + "\n".join(wanted)


def test_what_ends_a_process() -> None:
    assert sorted(ENDING) == ["abort", "crash", "exit", "kill", "stop"]


def test_the_ops_are_those_of_the_boundary() -> None:
    assert OPS[Kind.COLLECTIVE] == {op for op, _ in METHODS.values()} | MPI_OPS
    named = {*files.PATH_FUNCTIONS.values(), *files.PAIR_FUNCTIONS.values(), *files.FD_FUNCTIONS.values(), *FILE_LOCKS}
    assert OPS[Kind.FILE] == named | {"open"}
    assert OPS[Kind.SHM] == named | {"create", "attach", "close"}
    assert OPS[Kind.MEMORY] == {*memory._FUNCTIONS, "resize_", "mmap"}
    assert OPS[Kind.STORE] == {*stores.STORE_FUNCTIONS, JOINS_STORE}
    assert set(OPS) == set(Kind)


def test_a_plan_is_read_without_torch() -> None:
    code = (
        "import sys\n"
        "from rankdrill.faults import Plan\n"
        "Plan.from_json(Plan.parse('rank 0: skip at collective.*').to_json())\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
