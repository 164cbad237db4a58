"""What the kit does not do twice: ranks import an adapter's module, and a world is made, only where it is asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rankdrill.conformance import Adapter, Setting, conformance
from rankdrill.conformance.kit.asking import Asking
from rankdrill.conformance.kit.questions.catalogue import questions_for
from rankdrill.conformance.kit.questions.question import Question
from rankdrill.conformance.kit.suite import described
from tests.conformance.population import by_torch


def test_where_its_module_is_imported_a_class_of_tests_makes_nothing_but_the_plainest_payloads() -> None:
    made = []

    def noted(payload: Any) -> Any:
        made.append(payload)
        return payload

    conformance(by_torch, room=1_000, dress=noted)  # of a bound it is seen at once whether anything is within it
    assert {type(payload) for payload in made} <= {dict}
    assert {tuple(payload) for payload in made} <= {("rank", "turn", "words")}


def in_one_collective(tensor: torch.Tensor, at: Setting) -> list[torch.Tensor]:
    received = [torch.empty(tensor.shape, dtype=tensor.dtype) for _ in range(at.size)]
    dist.all_gather(received, tensor.contiguous(), group=at.group)
    return received


class Counted:
    """A gather that notes in the file `where` which processes were given it, and each call."""

    def __init__(self, where: Path, takes: str = "objects") -> None:
        self.where, self.takes = where, takes

    def described(self) -> Adapter:
        return described(self, takes=self.takes)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        self._note("process")

    def __call__(self, payload: Any, at: Setting) -> Any:
        self._note("call")
        return by_torch(payload, at) if self.takes == "objects" else in_one_collective(payload, at)

    def _note(self, what: str) -> None:
        with self.where.open("a") as noted:
            noted.write(f"{what} {os.getpid()}\n")

    def noted(self, what: str) -> list[str]:
        """The process of each that was noted, in order."""
        return [line for line in self.where.read_text().splitlines() if line.startswith(what)]


def _asked(gather: Counted, *names: str) -> list[Question]:
    return [each for each in questions_for(gather.described(), (2,)) if each.name in names]


def test_no_world_is_made_to_be_thrown_away(tmp_path: Path) -> None:
    gather = Counted(tmp_path / "noted")
    question, *_ = _asked(gather, "a payload that does not pickle on rank 1")
    with Asking(gather.described()) as asking:
        assert "rank 1 raised alone" in asking.ask(question)
    assert len(set(gather.noted("process"))) == 2


def test_a_step_that_is_the_first_and_the_last_is_struck_once(tmp_path: Path) -> None:
    gather = Counted(tmp_path / "noted", "equal tensors")
    slow = [f"rank 0 slow after its {which} collective" for which in ("first", "last")]
    first, last = _asked(gather, *slow)
    with Asking(gather.described()) as asking:
        assert asking.ask(last) == ""
        once = len(gather.noted("call"))
        assert asking.ask(first) == ""
        again = len(gather.noted("call"))
    assert once == again
