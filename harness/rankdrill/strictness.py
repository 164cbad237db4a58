"""What ranks are held to: whether they compare what they do, and whether all that they leave behind counts."""

from __future__ import annotations

from typing import Literal, TypeAlias

from rankdrill.errors import UsageError

__all__ = ["STRICT", "Contracts", "check_contracts", "contracts_asked_for", "contracts_of_both"]

Contracts: TypeAlias = bool | Literal["strict"]
"""Strictly, each group that the body made has to be destroyed by it: by default only what piles up is told."""
STRICT: Literal["strict"] = "strict"


def check_contracts(value: object) -> None:
    """Raise `UsageError` for what is no such setting."""
    if not isinstance(value, bool) and value != STRICT:
        raise UsageError(f'contracts={value!r} is not known; choose from True, False, "strict"')


def contracts_asked_for(*, without: bool, strictly: bool) -> Contracts:
    """What ``--no-contracts`` and ``--strict-contracts`` ask for; raises `UsageError` if both are given."""
    if without and strictly:
        raise UsageError("--no-contracts and --strict-contracts contradict each other; give one of them")
    return STRICT if strictly else not without


def contracts_of_both(all_tests: Contracts, own: Contracts) -> Contracts:
    """Of a test with a setting of its `own` where another is asked for `all_tests`: not to look goes before all."""
    if not (all_tests and own):
        return False
    return STRICT if STRICT in (all_tests, own) else True
