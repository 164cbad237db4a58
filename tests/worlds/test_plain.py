"""Records of plain data travel by pickle alone, what only cloudpickle carries still arrives."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, fields

import pytest

from rankdrill.plugin import commands
from rankdrill.plugin.ends import Ended, Ends, PhaseEnd, passed
from rankdrill.worlds.job import Job, Place, dump, load
from rankdrill.worlds.plain import Plain
from rankdrill.worlds.processes.messages import Account, Raised, Report, Returned

PLACE = commands.TestPlace("test_a.py::test_it", "/x/test_a.py", "/tmp/x", ("test_a.py", 3, "test_it"))
RECORDS = [
    PLACE,
    commands.Collect("/x/test_a.py"),
    commands.Open(PLACE, ("setup", "call"), None, True),
    commands.GoOn(("teardown",), PLACE),
    commands.Finish(),
    Place(("/x",), "/x", {"A": "1"}),
    Ends(
        (
            passed("setup", 0.5),
            PhaseEnd("call", Ended.XFAILED, "why", marked=True, seconds=0.25),
        ),
        (("w", "UserWarning", "f", 1),),
    ),
    Report(Returned(b"v"), 17, ("left a thread",), ("note",), Account(3)),
    Raised(b"", "trace", "ValueError", "no"),
    Job(print, (1,), {"end": ""}, None, with_context=True, keeps_state=True, by_reference=True),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_every_field_arrives(record: Plain) -> None:
    back = pickle.loads(pickle.dumps(record))
    assert type(back) is type(record)
    for field in fields(record):
        assert getattr(back, field.name) == getattr(record, field.name), field.name


def test_a_value_that_has_to_travel_by_value_does_so_within_a_plain_record() -> None:
    @dataclass
    class Local:
        number: int

    end = PhaseEnd("call", Ended.PASSED, properties=(("double", lambda: 2 * Local(21).number),))
    back = load(dump(Ends((end,)), by_reference=True))
    assert back.phases[0].properties[0][1]() == 42
