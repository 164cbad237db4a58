"""What JSON says of a finding is all that the finding says: field by field, of worlds and of sessions that have run."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import Finding, FindingKind, Side
from rankdrill.diagnosis.as_json import finding_as_fields
from rankdrill.step import NO_SEQUENCE, Site
from tests.conftest import Session

OF_RUNS = {"confidence", "confirmed_by"}  # what a run says beside what the finding has
KEPT = """
import pickle
import pytest

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call" and hasattr(item, "told"):  # ranks have items, too
        with open("findings.pickle", "wb") as file:
            pickle.dump(item.told["call"].findings, file)
    return report
"""
ANOTHER_ROOT = """
import pytest
import torch
import torch.distributed as dist

def share(root):
    dist.broadcast(torch.ones(2), root)

@pytest.mark.ranks(3)
def test_shares(rank):
    rank.barrier()
    share(1 if rank.index == 2 else 0)
"""


@pytest.fixture(scope="module")
def three() -> Iterator[World]:
    with World(3) as world:
        yield world


def as_json_has_it(value: Any) -> Any:
    """A field's value as its type says that JSON has it."""
    if isinstance(value, Site):
        told = as_fields(value) | {"file": value.path}
        return told | {"called_from": told.pop("caller")}
    if isinstance(value, Side | Finding):
        return as_fields(value)
    if isinstance(value, tuple):
        return [as_json_has_it(each) for each in value]
    return None if value in ("", NO_SEQUENCE) else value


def as_fields(value: Any) -> dict[str, Any]:
    """Every field that its class has, whichever these are; not what lies beside, and is no part of it."""
    return {field.name: as_json_has_it(getattr(value, field.name)) for field in fields(value) if field.compare}


def compare(findings: tuple[Finding, ...], told: list[dict[str, Any]]) -> None:
    assert findings
    assert len(told) == len(findings)
    for finding, one in zip(findings, told, strict=True):
        assert {name: value for name, value in one.items() if name not in OF_RUNS} == as_json_has_it(finding)
        assert set(one) >= OF_RUNS


def another_root() -> None:
    dist.broadcast(torch.ones(2), 1 if dist.get_rank() == 2 else 0)


def leaves_out_a_message() -> None:
    if dist.get_rank() == 0:
        dist.recv(torch.zeros(1), 1)
    dist.barrier()


def groups_in_two_orders() -> None:
    one, other = dist.new_group([0, 1]), dist.new_group([0, 1])
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1), group=one)
        dist.all_reduce(torch.ones(1), group=other)
    elif dist.get_rank() == 1:
        dist.all_reduce(torch.ones(1), group=other)
        dist.all_reduce(torch.ones(1), group=one)


@pytest.mark.parametrize("body", [another_root, leaves_out_a_message, groups_in_two_orders])
def test_a_worlds_outcome(three: World, body: Callable[[], None]) -> None:
    outcome = three.run(body, deadline=20)
    compare(outcome.findings, json.loads(outcome.to_json())["findings"])


def test_a_sessions_file(pytester: pytest.Pytester, session: Session) -> None:
    pytester.makeconftest(KEPT)
    pytester.makepyfile(test_root=ANOTHER_ROOT)
    session("-q", "-p", "no:cacheprovider", "--rankdrill-json=results.json").assert_outcomes(failed=1)
    (told,) = json.loads((pytester.path / "results.json").read_text())["tests"]
    compare(pickle.loads((pytester.path / "findings.pickle").read_bytes()), told["findings"])


ROOTS = Finding(
    FindingKind.ROOT, "broadcast #0 on 'default'", "root", (Side((2,), "has root 1", (None,)),), (2,), "default", 0
)


@dataclass(frozen=True)
class Longer(Finding):
    """A finding that has come to have one field more."""

    since: int = 7


def test_a_field_that_json_has_not_is_missed() -> None:
    finding = Longer(*(getattr(ROOTS, field.name) for field in fields(ROOTS)))
    sure = dict.fromkeys(OF_RUNS, "")
    compare((ROOTS,), [finding_as_fields(ROOTS) | sure])
    with pytest.raises(AssertionError, match="since"):
        compare((finding,), [finding_as_fields(finding) | sure])
