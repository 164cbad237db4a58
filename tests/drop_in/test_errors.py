"""What callers catch: the errors that they know from torch are still caught, and lead to their own line."""

from __future__ import annotations

import pickle
import threading
import traceback
from typing import Any

import pytest
import torch.distributed as dist

import rankdrill
from rankdrill.errors import EncodeError, GatherError, RankFailure, encode_error
from rankdrill.gathers import all_gather_object
from tests.gathers.attempts import TIMEOUT_S, all_alike

KINDS = {"TypeError": TypeError, "AttributeError": AttributeError, "PicklingError": pickle.PicklingError}


class Refuses:
    def __reduce__(self) -> Any:
        raise pickle.PicklingError("on purpose")


class OutOfOrder:
    def __reduce__(self) -> Any:
        raise ValueError("not now")


def payload_of(kind: str) -> Any:
    """What pickling refuses with an error of that type."""
    if kind == "TypeError":
        return threading.Lock()
    if kind == "AttributeError":

        class Local:
            pass

        return Local()
    return Refuses() if kind == "PicklingError" else OutOfOrder()


def raised_by(call: Any) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("kind", [*KINDS, "ValueError"])
def test_what_torch_raises_is_caught_on_all_ranks(kind: str) -> None:
    def body() -> Any:
        rank, received = dist.get_rank(), [None] * 2
        mine = payload_of(kind) if rank == 1 else rank
        plain = raised_by(lambda: pickle.dumps(payload_of(kind)))
        error = raised_by(lambda: all_gather_object(received, mine, timeout=TIMEOUT_S))
        assert isinstance(error, EncodeError)
        same = {name: isinstance(error, KINDS[name]) for name in KINDS}
        cause = error.__cause__
        lines = "".join(traceback.format_exception(cause)) if cause is not None else ""
        told = type(cause) is type(plain) if rank == 1 else cause is None
        own_line = "on purpose" in lines and "in __reduce__" in lines
        return type(error).__name__, same, type(plain).__name__, told, own_line or kind != "PicklingError" or rank == 0

    # What a local class is refused with is another error since Python 3.14.
    with rankdrill.World(2) as world:
        name, same, raised, told, line = all_alike(world.run(body).unwrap())
    assert name == "EncodeError"
    assert same == {each: each == raised for each in KINDS}
    assert told
    assert line


@pytest.mark.parametrize("kind", [*KINDS, "ValueError"])
def test_it_may_be_pickled_itself(kind: str) -> None:
    error = encode_error(f"{kind}: no", "all_gather", (RankFailure(1, f"{kind}: no"),), "a hint")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert isinstance(back, GatherError)
    assert (str(back), back.ranks, back.hint) == (str(error), (1,), "a hint")
