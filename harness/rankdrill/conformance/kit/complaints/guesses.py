"""What a wrong result would have been right for: that tells which mistake was made."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rankdrill.conformance.adapter import Adapter
from rankdrill.conformance.gives import GIVES, NOT_LOOKED_AT
from rankdrill.conformance.kit.complaints.changes import begins_with, how_alike, length_of, of_other_types

__all__ = ["TOLD", "Asked", "Guess", "likeness", "with_best"]

TOLD = "; this is "
"""What comes before a guess."""

_MOST_IN_ALL_ORDERS = 4  # ranks: of five there are 120 orders
_MOST_FITTING = 8  # guesses that are kept of one result
_OF_ITSELF = "its own"
_FORMS = {
    "list": "a list of all entries",
    "dict": "a dict of all entries by rank",
    "concatenated": "all ranks' items in one",
    "stacked": "all entries stacked in one tensor",
    "sum": "the sum",
    "mean": "the mean",
}


@dataclass(frozen=True)
class Guess:
    """What a result may be, as it follows "this is". `of_itself` says that it is another thing on each rank."""

    text: str
    of_itself: bool = False


@dataclass(frozen=True)
class Asked:
    """A call as one rank made it: `own` is its rank in the group, `payloads` are all ranks' in rank order, and
    `others` the payloads of the other calls by the same ranks, by number; `number` is that of this one, from 0.
    `elsewhere` is what other ranks contributed to their calls, each by their names.
    """

    adapter: Adapter
    own: int
    payloads: Sequence[Any]
    number: int
    others: Mapping[int, Sequence[Any]]
    elsewhere: Sequence[tuple[str, Sequence[Any]]] = ()

    def right(self, payloads: Sequence[Any]) -> Any:
        """What would be right had the ranks contributed `payloads`."""
        return self.adapter.receives(min(self.own, max(len(payloads) - 1, 0)), payloads)


def likeness(got: Any, asked: Asked) -> tuple[Guess, ...]:
    """What the wrong result `got` is, as far as that can be told; the best guess first.

    A guess is never about a rank of which nothing is expected.
    """
    with contextlib.suppress(Exception):  # what came may be anything, and compare as it likes
        wanted = asked.right(asked.payloads)
        if wanted is not NOT_LOOKED_AT:
            return tuple(itertools.islice(_fitting(got, wanted, asked), _MOST_FITTING))
    return ()


def with_best(wrong: str, guesses: Sequence[Sequence[Guess]], *, some_right: bool = False) -> str:
    """`wrong`, and the guess that says most of all that wrong ranks have each made of their result, in `guesses`.

    Where there is `some_right` rank, what would be the same on all ranks is not what happened.
    """
    best = _best_of(guesses, some_right=some_right)
    return f"{wrong}{TOLD}{best}" if best else wrong


def _best_of(guesses: Sequence[Sequence[Guess]], *, some_right: bool) -> str:
    first, *more = guesses or [()]
    candidates = [guess for guess in first if all(guess in its for its in more)] or list(first)
    of_themselves = [guess for guess in candidates if guess.of_itself]
    chosen = of_themselves if of_themselves and some_right else candidates
    return chosen[0].text if chosen else ""


def _fitting(got: Any, wanted: Any, asked: Asked) -> Iterator[Guess]:
    if types := of_other_types(got, wanted):
        yield Guess(f"right, but {types}")
    loosely = []
    for guess, value in _possible(wanted, asked):
        with contextlib.suppress(Exception):
            if value is NOT_LOOKED_AT or asked.adapter.differs(wanted, value) is None:
                continue
            if asked.adapter.differs(got, value, ordered=True) is None:
                yield guess
            elif types := of_other_types(got, value):
                loosely.append(Guess(f"{guess.text}, and {types}", guess.of_itself))
    if _are_padded(got, asked.payloads):
        yield Guess("every entry with something behind it, up to the longest")
    yield from loosely
    if told := how_alike(got, wanted):
        yield Guess(told)


def _possible(wanted: Any, asked: Asked) -> Iterator[tuple[Guess, Any]]:
    """Guesses, each with the result that it would be."""
    for guess, payloads in _other_payloads(asked):
        with contextlib.suppress(Exception):
            yield Guess(f"what {guess.text} would give", guess.of_itself), asked.right(payloads)
    for rank, payload in enumerate(asked.payloads):
        if rank == asked.own:
            yield Guess(f"{_OF_ITSELF} payload and nothing else", of_itself=True), payload
        yield Guess(f"rank {rank}'s payload and nothing else"), payload
    for text, made in _other_forms(wanted, asked.payloads):
        with contextlib.suppress(Exception):
            yield Guess(text), made()


def _other_payloads(asked: Asked) -> Iterator[tuple[Guess, Sequence[Any]]]:
    yield from _in_other_orders(asked)
    for text, change in _CHANGES.items():
        with contextlib.suppress(Exception):
            yield Guess(text), change(asked.payloads)
    with contextlib.suppress(Exception):
        length = len(asked.payloads[asked.own])
        guess = Guess(f"every entry cut or padded to {_OF_ITSELF} length", of_itself=True)
        yield guess, [_padded(payload, length) for payload in asked.payloads]
    yield from _of_other_calls(asked)
    for made, rank in itertools.product((_of_one, _with_one_elsewhere), range(len(asked.payloads))):
        if rank == asked.own:
            yield from made(asked, rank, Guess(_OF_ITSELF, of_itself=True))
        yield from made(asked, rank, Guess(f"rank {rank}'s"))
    yield Guess("every entry twice over"), [*asked.payloads, *asked.payloads]
    yield Guess("no entry of anybody"), []


def _in_other_orders(asked: Asked) -> Iterator[tuple[Guess, Sequence[Any]]]:
    own, payloads = asked.own, list(asked.payloads)
    others = payloads[:own] + payloads[own + 1 :]
    yield Guess("the entries in reversed order"), payloads[::-1]
    yield Guess(f"{_OF_ITSELF} entry first, then the others'", of_itself=True), [payloads[own], *others]
    yield Guess(f"the others' entries first, then {_OF_ITSELF}", of_itself=True), [*others, payloads[own]]
    if all(isinstance(payload, Mapping) for payload in payloads):
        by_place = [dict(zip(payloads[own], payload.values(), strict=False)) for payload in payloads]
        yield Guess(f"all values by place, under {_OF_ITSELF} names,", of_itself=True), by_place
    as_text = sorted(range(len(payloads)), key=str)
    yield Guess("the entries in the order of ranks as text"), [payloads[rank] for rank in as_text]
    if len(payloads) <= _MOST_IN_ALL_ORDERS:
        for order in itertools.permutations(range(len(payloads))):
            ranks = ", ".join(map(str, order))
            yield Guess(f"the entries of ranks {ranks}, in that order,"), [payloads[rank] for rank in order]


def _of_other_calls(asked: Asked) -> Iterator[tuple[Guess, Sequence[Any]]]:
    nearest = sorted(asked.others, key=lambda number: abs(number - asked.number))
    which = {asked.number - 1: ", the one before,", asked.number + 1: ", the one after,"}
    for number in nearest:
        yield Guess(f"the entries of call {number + 1}{which.get(number, '')}"), asked.others[number]
    for ranks, payloads in asked.elsewhere:
        yield Guess(f"the entries of {ranks}"), payloads
        yield Guess(f"the entries of {ranks} behind the right ones"), [*asked.payloads, *payloads]
        yield Guess(f"the entries of {ranks} before the right ones"), [*payloads, *asked.payloads]
        for place, payload in enumerate(payloads[: len(asked.payloads)]):
            yield Guess(f"an entry of {ranks} in place of rank {place}'s"), _with(asked.payloads, place, payload)
    for number, (rank, payload) in itertools.product(nearest[:2], enumerate(asked.payloads)):
        if number in which and payload is not None:
            guess = Guess(f"rank {rank}'s entry of call {number + 1}{which[number]} among the right ones")
            yield guess, _with(asked.payloads, rank, asked.others[number][rank])


def _of_one(asked: Asked, rank: int, whose: Guess) -> Iterator[tuple[Guess, Sequence[Any]]]:
    """With nothing but the entry of `rank`; `whose` it is."""
    payload = asked.payloads[rank]
    yield Guess(f"{whose.text} entry alone", whose.of_itself), [payload]
    yield Guess(f"{whose.text} entry in every place", whose.of_itself), [payload] * len(asked.payloads)


def _with_one_elsewhere(asked: Asked, rank: int, whose: Guess) -> Iterator[tuple[Guess, Sequence[Any]]]:
    """Without the entry of `rank`, or with it elsewhere."""
    payloads, entry = list(asked.payloads), f"{whose.text} entry"
    yield Guess(f"all entries but {whose.text}", whose.of_itself), payloads[:rank] + payloads[rank + 1 :]
    yield Guess(f"None in place of {entry}", whose.of_itself), _with(payloads, rank, None)
    for place in range(len(payloads)) if len(payloads) <= _MOST_IN_ALL_ORDERS else ():
        moved = _with(payloads, place, payloads[rank])
        yield Guess(f"{entry} in the place of rank {place}'s", whose.of_itself), moved


def _with(payloads: Sequence[Any], place: int, payload: Any) -> list[Any]:
    return [*payloads[:place], payload, *payloads[place + 1 :]]


def _is_empty(payload: Any) -> bool:
    if isinstance(payload, torch.Tensor):
        return payload.numel() == 0
    return hasattr(payload, "__len__") and len(payload) == 0


def _cut(payloads: Sequence[Any], length: int) -> Sequence[Any]:
    return [payload[:length] for payload in payloads]


def _padded(payload: Any, length: int) -> Any:
    """`payload` with zeros behind it, or None, and cut where it is longer."""
    more = length - len(payload)
    if isinstance(payload, torch.Tensor):
        return torch.cat([payload[:length], payload.new_zeros(max(more, 0), *payload.shape[1:])])
    filler: dict[type, Any] = {bytes: b"\0", str: " ", list: [None], tuple: (None,)}
    return payload[:length] + filler[type(payload)] * max(more, 0)


def _of_keys(payload: Mapping[Any, Any], keys: Any) -> Any:
    if not isinstance(keys, Mapping):
        raise TypeError
    return {key: payload[key] for key in keys if key in payload}


def _without_none(payload: Any) -> Any:
    return [item for item in payload if item is not None] if isinstance(payload, list) else payload


_CHANGES: dict[str, Callable[[Sequence[Any]], Sequence[Any]]] = {
    "the entries without those that are None": lambda all_: [each for each in all_ if each is not None],
    "the entries without those that are empty": lambda all_: [each for each in all_ if not _is_empty(each)],
    "None for each entry that is empty or zero": lambda all_: [each or None for each in all_],
    "every entry without items that are None": lambda all_: list(map(_without_none, all_)),
    "every entry with rank 0's keys alone": lambda all_: [_of_keys(each, all_[0]) for each in all_],
    "every entry cut to the shortest": lambda all_: _cut(all_, min(map(len, all_))),
    "every entry padded to the longest": lambda all_: [_padded(each, max(map(len, all_))) for each in all_],
    "every entry as long as rank 0's": lambda all_: [_padded(each, len(all_[0])) for each in all_],
}
"""What is done to all entries. Each may fail, where entries are such that it cannot be done."""


def _other_forms(wanted: Any, payloads: Sequence[Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    size = len(payloads)
    for name, text in _FORMS.items():
        yield text, lambda name=name: GIVES[name](0, payloads)  # type: ignore[misc]
    yield "the right one without what is None", lambda: _without_none(wanted)
    yield "all ranks' items in turns", lambda: _in_turns(payloads)
    yield "all entries side by side, joined in their last dimension", lambda: torch.cat(list(payloads), dim=-1)
    yield f"the right one times {size}", lambda: _each(wanted, lambda number: number * size)
    yield f"the right one divided by {size}", lambda: _each(wanted, lambda number: number / size)


def _in_turns(payloads: Sequence[Any]) -> Any:
    if isinstance(payloads[0], torch.Tensor):
        return torch.stack(list(payloads), dim=1).flatten(0, 1)
    rows = itertools.zip_longest(*payloads, fillvalue=NOT_LOOKED_AT)
    return [item for row in rows for item in row if item is not NOT_LOOKED_AT]


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _each(item, change) for key, item in value.items()}
    if isinstance(value, int | float | torch.Tensor):
        return change(value)
    raise TypeError


def _are_padded(got: Any, payloads: Sequence[Any]) -> bool:
    """Whether each rank's part of what came is its payload with anything behind it, and all are of one length."""
    lengths = [length_of(payload) for payload in payloads]
    known = [length for length in lengths if length is not None]
    if len(known) < len(lengths) or len(set(known)) == 1:
        return False
    longest = max(known)
    parts = got
    if isinstance(got, torch.Tensor) and length_of(got) == longest * len(payloads):
        parts = torch.tensor_split(got, len(payloads)) if longest else ()
    if not isinstance(parts, list | tuple) or len(parts) != len(payloads):
        return False
    return all(length_of(part) == longest for part in parts) and all(map(begins_with, parts, payloads))
