"""On a rank: writes down what it takes and gives, for its copies, as long as that can be told to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import torch

from rankdrill.boundary.contracts import flatten
from rankdrill.boundary.gate import Call, Proceed
from rankdrill.boundary.handed import asked_to_wait
from rankdrill.boundary.orders.kept import Kept, as_bytes, is_begun, is_pickled, is_set, is_written
from rankdrill.boundary.orders.script import Answer, Asked, Came, Made, Script
from rankdrill.step import ANYBODY, RECV, SEND, Kind, Message, Step

__all__ = ["LOCAL", "MOST_BYTES", "Recorder", "given_to", "pickled_for_comparison", "waits_at_once"]

MOST_BYTES = 1 << 20  # of tensors, and of what is kept, in one script
LOCAL = frozenset({Kind.OBJECT, Kind.MEMORY, Kind.CLOCK})
"""What a rank, and its copy, does for itself."""
_ALONE = frozenset({"recv", "irecv", "recv_object_list"})  # in which nothing is sent beside


class Recorder:
    """Writes into `script`; calls `stop` at the first step that cannot be told."""

    def __init__(self, script: Script, stop: Callable[[], None]) -> None:
        self._script = script
        self._stop = stop
        self._bytes = 0
        self._objects: list[bytes] = []

    def __call__(self, call: Call, proceed: Proceed) -> Any:
        step = call.step
        if is_pickled(call):
            self._pickle(call.args["obj"])
        if is_written(call):
            self._keep(step.target, bytes(call.args["data"]))
        if step.kind in LOCAL or is_begun(call) or is_written(call):
            return proceed(call)
        if step.kind is Kind.STORE and "given" in call.args:
            return self._of_a_store(call, proceed)
        if step.op == RECV and step.site is not None and step.site.via in _ALONE:
            return proceed(call)  # `came` follows, once it has
        if step.op == SEND and step.message is not None and self._script.answers_to(step.target, call.args["peer"]):
            self._answer(call, step.message)
            return proceed(call)
        if step.kind is not Kind.COLLECTIVE or step.message is not None or not waits_at_once(call):
            self._stop()
            return proceed(call)
        given = self._copied(given_to(call))
        work = proceed(call)
        if work is not None:
            work.wait()
        held = self._copied([*flatten(call.args.get("outputs")), *flatten(call.args.get("tensors"))])
        if given is None or held is None:
            self._stop()
        else:
            self._script.called(Made(step.op, step.call, given, held))
        return work

    def _of_a_store(self, call: Call, proceed: Proceed) -> Any:
        keys, given = call.args["keys"], call.args["given"]
        if is_set(call):
            self._keep(keys[0], as_bytes(given[0]))
            return proceed(call)
        if not self._has_room_for(sum(len(each) for each in given if isinstance(each, str | bytes))):
            self._stop()
        answer = proceed(call)
        self._script.called(Asked(call.step.op, keys, given, answer))
        return answer

    def _answer(self, call: Call, message: Message) -> None:
        content = self._copied(list(flatten(call.args.get("tensors"))))
        if content is None:
            self._stop()
            return
        self._script.answered(Answer(call.step.target, call.args["peer"], message.tag, content))

    def came(self, taken: Step, message: Message, source: int, into: Any) -> None:
        """The receive `taken` has got `message` from member `source` of its group: what lies in the tensors `into`."""
        content = self._copied(list(flatten(into)))
        if content is None or taken.message is None:
            self._stop()
            return
        named = taken.message.peer != ANYBODY
        self._script.came(Came(taken.target, source, message, content, taken.site, named))

    def _pickle(self, obj: Any) -> None:
        """It is about to be pickled, and may go into a file."""
        pickled = pickled_for_comparison(obj)
        if pickled is None or not self._has_room_for(len(pickled)):
            self._stop()
        else:
            self._objects.append(pickled)

    def _keep(self, path: str, data: bytes) -> None:
        if not self._has_room_for(len(data)):
            self._stop()
            return
        self._script.kept.append(Kept(path, data, tuple(self._objects)))
        self._objects.clear()

    def _has_room_for(self, nbytes: int) -> bool:
        self._bytes += nbytes
        return self._bytes <= MOST_BYTES

    def _copied(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...] | None:
        """Copies of them; None where they are too much, or not to be had."""
        if any(tensor.device.type != "cpu" or tensor.layout is not torch.strided for tensor in tensors):
            return None
        nbytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return tuple(tensor.detach().clone() for tensor in tensors) if self._has_room_for(nbytes) else None


def pickled_for_comparison(obj: Any) -> bytes | None:
    """None where it cannot be."""
    try:
        pickled: bytes = cloudpickle.dumps(obj)
    except Exception:
        return None
    return pickled


def waits_at_once(call: Call) -> bool:
    """Whether torch waits for the call before it returns."""
    handed = getattr(call.args.get("opts"), "asyncOp", None)
    return asked_to_wait() if handed is None else not handed


def given_to(call: Call) -> list[torch.Tensor]:
    """The tensors that this rank brings."""
    if call.step.op == "broadcast" and call.args["opts"].rootRank != call.args["group"].place:
        return []
    return list(flatten(call.args.get("tensors")))
