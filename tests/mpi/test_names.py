"""The calls that are steps are mpi4py's, and their roots, reduce ops and peers stand where they are looked for."""

from __future__ import annotations

import inspect

import pytest

from rankdrill import World
from rankdrill.boundary.mpi.names import (
    BOTH,
    COLLECTIVES,
    MAKERS,
    MEMBERS_MAKE,
    PERSISTENT_SENDS,
    RECEIVES,
    REDUCING,
    ROOTED,
    SENDS,
    peer_place,
)
from tests.mpi import bodies
from tests.mpi.installed import needs_mpi

pytestmark = needs_mpi


def parameters() -> dict[str, list[str]]:
    """The parameters of each method of a communicator, as mpi4py shows them."""
    plain = type(bodies.world()).__base__
    assert plain is not None
    found = {}
    for name in dir(plain):
        method = getattr(plain, name)
        if not name.startswith("_") and callable(method):
            try:
                found[name] = list(inspect.signature(method).parameters)[1:]  # without the communicator
            except ValueError:
                continue
    return found


@pytest.fixture(scope="module")
def known() -> dict[str, list[str]]:
    with World(1, mpi=True) as world:
        (found,) = world.run(parameters).unwrap()
        assert isinstance(found, dict)
        return found


def test_all_are_there(known: dict[str, list[str]]) -> None:
    named = COLLECTIVES | MAKERS | MEMBERS_MAKE | SENDS | PERSISTENT_SENDS | set(RECEIVES) | set(BOTH)
    assert named - known.keys() == set()


def test_what_is_looked_for_is_where_it_is_looked_for(known: dict[str, list[str]]) -> None:
    assert {name: known[name].index("root") for name in ROOTED} == ROOTED
    assert {name: known[name].index("op") for name in REDUCING} == REDUCING
    for name in SENDS | PERSISTENT_SENDS:
        assert known[name][peer_place(name) :][:2] == ["dest", "tag"], name
    for name in RECEIVES:
        assert known[name][peer_place(name) :][:2] == ["source", "tag"], name
    for name, place in BOTH.items():
        assert known[name][place:][:2] == ["source", "recvtag"], name
        assert known[name][1] == "dest", name


def test_no_collective_with_a_root_or_an_operator_is_left_out(known: dict[str, list[str]]) -> None:
    collectives = {name: known[name] for name in COLLECTIVES}
    assert {name for name, listed in collectives.items() if "root" in listed} == set(ROOTED)
    reducing = {name for name, listed in collectives.items() if "op" in listed}
    assert reducing - REDUCING.keys() <= {name for name in reducing if "scatter" in name or "scan" in name}
