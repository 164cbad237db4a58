"""What torch's own gather answers to the same question: how much the question asks."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from rankdrill.conformance.adapter import Adapter, Setting
from rankdrill.conformance.kit.asking import Asking
from rankdrill.conformance.kit.questions import Question

__all__ = ["ask_torch"]


def _all_gather_object(payload: Any, setting: Setting) -> Any:
    received = [None] * setting.size
    dist.all_gather_object(received, payload, group=setting.group)
    return received


TORCH = Adapter("torch.distributed.all_gather_object", _all_gather_object)


def ask_torch(question: Question) -> str:
    """One line, to be added to a complaint."""
    with Asking(TORCH) as asking:
        complaint = asking.ask(question)
    return f"({TORCH.name} {'fails here, too' if complaint else 'comes through this'})"
