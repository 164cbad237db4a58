"""Whether a condition asks for the rank: by whatever names it is bound to, and at no great cost in a large file."""

import ast
import time

import pytest

from rankdrill.diagnosis.calls.asking import asks_for_the_rank

BOUND_S = 5.0  # it takes some milliseconds


def asks(test: str, source: str) -> bool:
    return asks_for_the_rank(ast.parse(test, mode="eval").body, ast.parse(source))


@pytest.mark.parametrize(
    ("test", "source", "expected"),
    [
        ("rank == 0", "", True),
        ("dist.get_rank() in members", "", True),
        ("leader", "leader = rank == 0", True),
        ("is_main_process()", "", True),
        ("state.is_world_process_zero and step == 2", "", True),
        ("accelerator.process_index == 1", "", True),
        ("batch.index == 1", "", False),
        ('__name__ == "__main__"', "", False),
        ("main", "main = build()", False),
        ("first", "def pick():\n    return dist.get_rank() == 0\nfirst = pick()", True),
        ("self.remaining > 0", "self.remaining = len(batches)", False),
    ],
)
def test_by_what_it_is_bound_to(test: str, source: str, expected: bool) -> None:
    assert asks(test, source) is expected


def test_names_that_are_bound_to_many_others_are_each_looked_up_once() -> None:
    names = [f"value_{number}" for number in range(40)]
    source = "\n".join(f"{name} = {' + '.join(names)}" for name in names)
    began = time.monotonic()
    assert not asks("value_0 > 1", source)
    assert asks("value_0 > 1", f"{source}\nvalue_39 = rank + 1")
    assert time.monotonic() - began < BOUND_S
