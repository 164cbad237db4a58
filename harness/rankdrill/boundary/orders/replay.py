"""In a copy of a rank: the calls get what its script has for them, and are compared with it."""

from __future__ import annotations

import pickle
from typing import Any, NoReturn

import torch

from rankdrill.boundary.contracts import flatten
from rankdrill.boundary.gate import Call, Proceed
from rankdrill.boundary.orders.alike import alike
from rankdrill.boundary.orders.copies import Part, leave
from rankdrill.boundary.orders.kept import NOWHERE, Kept, as_bytes, is_begun, is_pickled, is_set, is_written, told_apart
from rankdrill.boundary.orders.recording import LOCAL, given_to, pickled_for_comparison, waits_at_once
from rankdrill.boundary.orders.script import Asked, Came, Made
from rankdrill.step import ANYBODY, RECV, SEND, Kind

__all__ = ["Replay"]

_SAME = ""


class Replay:
    """Stands in the place of all other ranks. The copy ends where it does something else, or knows nothing more."""

    def __init__(self, part: Part) -> None:
        self._script, self._tell = part.script, part.tell
        self._at = 0  # collectives, and what stores were asked, so far
        self._left = [list(part) for part in part.script.parts]
        self._answers = [list(part) for part in part.script.answers]
        self._kept = list(part.script.kept)
        self._objects: list[bytes] = []

    def __call__(self, call: Call, proceed: Proceed) -> Any:
        step = call.step
        if is_pickled(call):
            self._objects.append(pickled_for_comparison(call.args["obj"]) or self.end(_SAME))
        if is_begun(call):
            return proceed(call.with_args(path=NOWHERE))
        if is_written(call):
            self._keep(Kept(step.target, bytes(call.args["data"]), tuple(self._objects)))
            self._objects.clear()
        if step.kind in LOCAL or is_written(call):
            return proceed(call)
        if step.kind is Kind.STORE and "given" in call.args:
            return self._of_a_store(call)
        if step.op == RECV and step.message is not None:
            return self._receive(call)
        if step.op == SEND and step.message is not None:
            return self._answer(call)
        if step.kind is not Kind.COLLECTIVE or step.message is not None or not waits_at_once(call):
            self.end(_SAME)
        return self._collective(call)

    def _receive(self, call: Call) -> Any:
        message = call.step.message
        assert message is not None
        stream, named = (call.step.target, message.tag), message.peer != ANYBODY
        left = self._left[self._at]
        wanted = {call.args["peer"]} if named else {one.source for one in left}
        fits = (one for one in left if one.stream == stream and one.named == named and one.source in wanted)
        one = next(fits, None)
        if one is None:  # it takes more than its rank has: what that would be is not known
            self.end(_SAME)
        left[:] = [other for other in left if other is not one]
        _fill(list(flatten(call.args.get("tensors"))), one.content)
        return _Over(one)

    def _answer(self, call: Call) -> Any:
        """What somebody gets here must be what it got of the rank: else nobody knows what it would have done then."""
        message = call.step.message
        assert message is not None
        left = self._answers[self._at]
        to = call.step.target, call.args["peer"], message.tag
        due = next((one for one in left if (one.group, one.target, one.tag) == to), None)
        if due is None or not _is_exactly(list(flatten(call.args.get("tensors"))), due.content):
            self.end(_SAME)
        left[:] = [one for one in left if one is not due]
        return _Over(None)

    def _keep(self, now: Kept, words: str = "written something else into {}") -> None:
        was = next((one for one in self._kept if one.path == now.path), None)
        if was is None:  # its rank has written there less often, or not while that was written down
            self.end(_SAME)
        self._kept.remove(was)
        if told_apart(was, now):
            self.end(words.format(now.name))

    def _of_a_store(self, call: Call) -> Any:
        keys, given = call.args["keys"], call.args["given"]
        if is_set(call):
            self._keep(Kept(keys[0], as_bytes(given[0])), "set {} to something else")
            return None
        asked = self._script.made[self._at] if self._at < len(self._script.made) else None
        # Whatever else it asks for, what it would be told is not known.
        if (
            self._answers[self._at]
            or not isinstance(asked, Asked)
            or (asked.op, asked.keys, asked.given) != (call.step.op, keys, given)
        ):
            self.end(_SAME)
        self._at += 1
        return asked.answer

    def _collective(self, call: Call) -> Any:
        if self._at >= len(self._script.made):
            if self._script.end is not None:
                self.end(f"called {call.step.op} once more")
            self.end(_SAME)
        if self._answers[self._at]:
            self.end(_SAME)
        made = self._script.made[self._at]
        if isinstance(made, Asked):
            self.end(_SAME)
        if made.op != call.step.op:
            self.end(f"called {call.step.op} in the place of {made.name}")
        if not alike(given_to(call), made.given):
            self.end(f"given {made.name} something else")
        _fill([*flatten(call.args.get("outputs")), *flatten(call.args.get("tensors"))], made.held)
        self._at += 1
        return _Over(None)

    def over(self, value: Any, error: BaseException | None) -> NoReturn:
        """The body has come to its end."""
        end = self._script.end
        if end is None:
            self.end(_SAME)
        raised = type(error).__qualname__ if error is not None else ""
        if raised != end.raised:
            self.end(f"raised {raised}" if raised else "raised nothing")
        left = self._script.made[self._at :]
        if left:
            self.end(f"ended without {left[0].name}" if isinstance(left[0], Made) else _SAME)
        self.end(_SAME if error is not None or alike(value, pickle.loads(end.value)) else "returned something else")

    def end(self, difference: str) -> NoReturn:
        """Tell it, and be gone."""
        try:
            self._tell(difference)
        finally:
            leave()


class _Over:
    """Work that is over."""

    def __init__(self, message: Came | None) -> None:
        self._message = message

    def wait(self, *_: Any) -> bool:
        return True

    is_completed = is_success = wait

    def exception(self) -> None:
        return None

    def _source_rank(self) -> int:
        return self._message.source if self._message is not None else -1


def _is_exactly(tensors: list[torch.Tensor], content: tuple[torch.Tensor, ...]) -> bool:
    return len(tensors) == len(content) and all(map(torch.equal, tensors, content))


def _fill(tensors: list[torch.Tensor], held: tuple[torch.Tensor, ...]) -> None:
    with torch.no_grad():
        for tensor, one in zip(tensors, held, strict=False):
            tensor.copy_(one)
