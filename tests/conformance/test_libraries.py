"""What a gather's repo stands on is imported once, where ranks are forked from; the gather's own package by each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rankdrill.conformance.libraries import libraries_of

_NOTED = ("stands_on", "somebodys.comm", "of_theirs")
_NOTES = """\
import os

with open({where!r}, "a") as noted:
    noted.write(f"{{__name__}} {{os.getpid()}}\\n")
"""
_GATHER = """\
import torch.distributed as dist

import stands_on


def gather(payload):
    received = [None] * dist.get_world_size()
    dist.all_gather_object(received, payload)
    return received
"""
_ADAPTER = """\
from somebodys import comm

from rankdrill.conformance import conformance


def over_torch(payload, at):
    return comm.gather(payload)


TestTheirs = conformance(over_torch, ranks=(2,), promises={"contained"})
"""


class _OutsideOfItsContext:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"there is no {name} here")


_STANDS_FOR_ANOTHER = _OutsideOfItsContext()


def test_what_stands_for_something_else_is_not_asked_for_it() -> None:
    assert "rankdrill" not in libraries_of(lambda payload: (_STANDS_FOR_ANOTHER, payload))


def _written(path: Path, *parts: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts))


def test_ranks_that_are_replaced_do_not_import_the_libraries_again(tmp_path: Path) -> None:
    notes = _NOTES.format(where=str(tmp_path / "noted"))
    installed, users = tmp_path / "site-packages", tmp_path / "users"
    _written(installed / "stands_on" / "__init__.py", notes)
    _written(installed / "somebodys" / "__init__.py", "")
    _written(installed / "somebodys" / "comm.py", notes, _GATHER)
    _written(users / "of_theirs.py", notes, _ADAPTER)
    command = [sys.executable, "-m", "rankdrill", "drill", "--path", "of_theirs:TestTheirs", "--ask", "contained"]
    environment = {**os.environ, "PYTHONPATH": f"{users}:{installed}"}
    done = subprocess.run(command, env=environment, cwd=users, capture_output=True, text=True, timeout=300, check=False)
    assert "raised alone" in done.stdout, done.stdout + done.stderr
    assert "cannot preload" not in done.stderr
    lines = (tmp_path / "noted").read_text().splitlines()
    processes = {name: {line for line in lines if line.startswith(f"{name} ")} for name in _NOTED}
    assert len(processes["stands_on"]) == 2  # this command, and the process that ranks are forked from
    assert len(processes["somebodys.comm"]) == len(processes["of_theirs"]) > 4  # this command, and all ranks
