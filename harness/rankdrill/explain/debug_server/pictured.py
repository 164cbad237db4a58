"""What torch's debug server has told as a picture: the calls that its recorders had, and the stacks of all ranks."""

from __future__ import annotations

from dataclasses import replace

from rankdrill.explain.debug_server.served import Served
from rankdrill.explain.debug_server.stacks import Stack
from rankdrill.explain.flight.pictured import picture_of_dumps
from rankdrill.explain.pictured import Left, pictured
from rankdrill.report import Picture

__all__ = ["picture_of_served"]

_NO_STEPS = "Stacks are all that the server told: of no rank it is known which calls it made before."


def picture_of_served(served: Served, repeat: str) -> Picture:
    """The picture of what became of a job; `repeat` is the command to be told."""
    stacks = {rank: _told(stack) for rank, stack in served.stacks.items()}
    if served.read is not None:
        return picture_of_dumps(replace(served.read, explanation=served.explanation), repeat, stacks)
    left = {rank: Left("waits" if served.stacks[rank].call else "unknown", stack=told) for rank, told in stacks.items()}
    return pictured(served.explanation, left, repeat, (_NO_STEPS,))


def _told(stack: Stack) -> str:
    return f"did not answer: {stack.error}" if stack.error else stack.text
