"""What was answered so far, kept in a file after each answer, so that a run that was interrupted can go on."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from benchmarks.holding.asking import Answer, Correct, Tried
from benchmarks.holding.population import Mutant
from benchmarks.machine import machine

__all__ = ["Record"]


class Record:
    """The answers, of `mutants` and of correct gathers. With `again` those that `file` has are there from the start."""

    def __init__(self, file: Path | None, mutants: Sequence[Mutant], *, again: bool) -> None:
        self._file = file
        self.tried: list[Tried] = []
        self.correct: list[Correct] = []
        if again and file is not None and file.is_file():
            self._read(json.loads(file.read_text()), {mutant.name: mutant for mutant in mutants})

    def has(self, mutant: Mutant) -> bool:
        """Whether it has been tried."""
        return any(each.mutant == mutant for each in self.tried)

    def rounds_of(self, adapter: str) -> int:
        """How often the correct gather behind `adapter` has been asked."""
        return sum(each.adapter == adapter for each in self.correct)

    def add(self, answered: Tried | Correct) -> None:
        """Keep it, in the file too."""
        if isinstance(answered, Tried):
            self.tried.append(answered)
        else:
            self.correct.append(answered)
        if self._file is not None:
            aside = self._file.with_suffix(".part")
            aside.write_text(json.dumps(self._as_data(), indent=1) + "\n")
            os.replace(aside, self._file)

    def _as_data(self) -> dict[str, object]:
        return {
            "machine": machine(torch=torch.__version__),
            "mutants": [
                {**asdict(each), "killed": each.killed, "said": each.said, "seconds": each.seconds}
                for each in self.tried
            ],
            "correct": [asdict(each) for each in self.correct],
        }

    def _read(self, data: Any, mutants: dict[str, Mutant]) -> None:
        for each in data["mutants"]:
            mutant = mutants.get(each["mutant"]["name"])
            if mutant is not None and _written(mutant) == each["mutant"]:  # else it is another one by now
                self.tried.append(Tried(mutant, tuple(map(_answer, each["answers"]))))
        self.correct += [Correct(each["adapter"], _answer(each["answer"])) for each in data["correct"]]


def _written(mutant: Mutant) -> object:
    return json.loads(json.dumps(asdict(mutant)))


def _answer(data: dict[str, Any]) -> Answer:
    return Answer(**{**data, "complaints": tuple(data["complaints"])})
