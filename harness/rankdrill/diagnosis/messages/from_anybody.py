"""A receive from anybody that nobody sends to, and a message to that rank under another tag, which nobody takes."""

from __future__ import annotations

from collections.abc import Mapping

from rankdrill.diagnosis.messages.misaddressed import Misaddressed
from rankdrill.diagnosis.messages.traffic import MessageEnd, Stream, Traffic
from rankdrill.diagnosis.waits import Wait
from rankdrill.step import ANY_TAG, ANYBODY, RECV

__all__ = ["sent_with_another_tag"]


def sent_with_another_tag(lost: Mapping[int, Wait], traffic: Traffic) -> Misaddressed | None:
    """The one message to one of the `lost` ranks, which wait for ever, that only its tag keeps from being taken.

    Its sender is odd where messages from its line have the tag that is waited for, its own before or another rank's.
    """
    for rank, wait in lost.items():
        step, message = wait.record.step, wait.record.step.message
        if step.op != RECV or message is None or message.peer != ANYBODY or message.tag == ANY_TAG:
            continue
        strays = [
            end
            for end in traffic.left_over()
            if end.sends and (end.stream.group, end.stream.target) == (step.target, rank)
        ]
        if len(strays) != 1 or strays[0].stream.tag == message.tag:
            continue
        (stray,) = strays
        taken = MessageEnd(rank, Stream(step.target, stray.rank, rank, message.tag), stray.number, wait.record)
        return Misaddressed((stray, taken), "tag", stray if _has_that_tag_else(stray, taken, traffic) else None)
    return None


def _has_that_tag_else(stray: MessageEnd, taken: MessageEnd, traffic: Traffic) -> bool:
    if {rank for rank, ends in traffic.ends.items() if ends} <= {stray.rank, taken.rank}:
        return False  # one against one
    return any(
        end.sends and end.site == stray.site and end.stream._replace(source=stray.rank) == taken.stream
        for ends in traffic.ends.values()
        for end in ends
    )
