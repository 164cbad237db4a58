"""From dumps of a flight recorder to a run on this machine: the same comes of it, and nothing in them is run."""

from __future__ import annotations

import ast
import os
import pickle
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rankdrill import World
from rankdrill.cli import main
from rankdrill.replay import play, pytest_file, score_of_dumps
from rankdrill.replay.playing import same_finding
from rankdrill.step import NOBODY
from tests.covering import thinned
from tests.explain.flights import Flight, Op, as_torchcomms, recv, send, torch_pickle, write
from tests.explain.recording import is_there, late_rank
from tests.explain.test_flight_verdicts import FAULTS, RIGHT, Case, rounds, without
from tests.explain.test_flight_verdicts import ranks as programs
from tests.explain.test_fuzz import flight as fuzzed
from tests.explain.test_fuzz import mutants, raws, wrong_values
from tests.torch_can import Can, needs

DEADLINE_S = 60.0
MUTANTS_EVERY = 211


def replayed(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["replay", *map(str, arguments)])


@pytest.mark.parametrize("case", thinned([*FAULTS, *RIGHT], 3), ids=str)
def test_the_same_comes_of_it(case: Case, tmp_path: Path) -> None:
    score = score_of_dumps([write(case.flight(), tmp_path / "dumps")])
    played = play(score, deadline=DEADLINE_S)
    assert played.as_told(score), f"{score.verdict}, here {played.verdict}: {played.source}"
    assert bool(case.kinds) is not played.outcome.ok


def test_json_is_played_as_pickles_are(tmp_path: Path) -> None:
    flight = Flight(programs(4, without(2, 7)))
    one, other = (write(flight, tmp_path / str(as_json), as_json=as_json) for as_json in (False, True))
    assert score_of_dumps([one]) == score_of_dumps([other])
    assert "here:  missing call: 2" in replayed(other).output


@pytest.mark.skipif(not is_there(), reason="this torch has no flight recorder for gloo")
@pytest.mark.parametrize("prefix", ["rank_", pytest.param("json_", marks=pytest.mark.nightly)])
def test_what_torch_has_written_becomes_a_test(prefix: str, tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    with World(3) as world:
        world.run(late_rank, str(dumps), 1, deadline=DEADLINE_S).unwrap()
    long_ago(dumps)
    test = tmp_path / "test_hang.py"
    done = replayed("--prefix", prefix, "--as-test", test, dumps)
    assert done.exit_code == 0, done.output
    assert "there: missing call: 1\nhere:  missing call: 1" in done.output
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test.name]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stdout
    assert "missing call: rank 1 leaves out all_reduce #6" in run.stdout
    assert ("recording.py:" in test.read_text()) is (prefix == "rank_"), "JSON has no lines"


def long_ago(dumps: Path) -> None:
    """As if they had been written when the hang had lasted."""
    for dump in dumps.iterdir():
        os.utime(dump, (time.time() + 600,) * 2)


def test_what_dumps_do_not_say_is_said_to_be_assumed(tmp_path: Path) -> None:
    write(Flight(programs(4, lambda rank: rounds(2)), until={3: 4}), tmp_path / "dumps")
    test = tmp_path / "test_hang.py"
    done = replayed("--as-test", test, tmp_path / "dumps")
    assumed = [line.removeprefix("assumed: ") for line in done.output.splitlines() if line.startswith("assumed: ")]
    assert assumed == [
        "dumps have no reduce operators: all are taken for sums",
        "dumps have no roots: taken is the first rank of each group",
        "no dump tells what rank 3 did behind the last recorded call: here it returns",
    ]
    docstring = ast.get_docstring(ast.parse(test.read_text())) or ""
    assert all(f"{line[0].upper()}{line[1:]}." in docstring for line in assumed)


def test_of_a_lost_rank_is_taken_what_the_others_could_only_do_with_it(tmp_path: Path) -> None:
    flight = Flight(programs(4, lambda rank: rounds(4)), until={2: 5}, gone=frozenset({2}))
    score = score_of_dumps([write(flight, tmp_path)])
    (lost,) = (part for part in score.parts if part.rank == 2)
    assert [call.op for call in lost.calls] == ["all_reduce", "broadcast", "all_reduce", "all_reduce", "broadcast"]
    assert lost.end.how == "killed"
    assert any("what rank 2 did is not all recorded" in line for line in score.assumed)


def test_of_a_lost_rank_messages_are_taken_too(tmp_path: Path) -> None:
    relay = {0: [send(1)] * 3, 1: [recv(0), send(2)] * 3, 2: [recv(1)] * 3}
    score = score_of_dumps([write(Flight(relay, until={1: 4}, gone=frozenset({1})), tmp_path)])
    lost = next(part for part in score.parts if part.rank == 1)
    assert [(call.op, call.peer) for call in lost.calls] == [("recv", 0), ("send", 2)] * 2
    played = play(score, deadline=DEADLINE_S)
    assert (score.verdict, played.verdict) == ("died: 1", "died: 1")


def test_calls_that_only_some_rings_still_hold_are_left_out(tmp_path: Path) -> None:
    flight = Flight(programs(4, without(2, 100, 40)), ring=16)
    for rank in (1, 3):
        flight.entries[rank] = flight.entries[rank][-9:]
    score = score_of_dumps([write(flight, tmp_path)])
    numbers = {tuple(call.number for call in part.calls) for part in score.parts}
    assert {each[0] for each in numbers} == {min(entry.seq for entry in flight.entries[3])}
    assert any("left out at the beginning" in line for line in score.assumed)
    assert play(score, deadline=DEADLINE_S).as_told(score)


def test_roots_of_gathers_are_known_and_others_assumed(tmp_path: Path) -> None:
    def program(rank: int) -> list[Op]:
        gathered = Op("gather", outputs=((4, 4),) if rank == 3 else ())
        scattered = Op("scatter", sizes=((4,),) * 4 if rank == 1 else (), outputs=((4,),))
        return [gathered, Op("broadcast"), scattered]

    score = score_of_dumps([write(Flight(programs(4, program), backend="gloo"), tmp_path)])
    assert {tuple(call.root for call in part.calls) for part in score.parts} == {(3, 0, 1)}
    assert play(score, deadline=DEADLINE_S).outcome.ok


def test_types_that_gloo_does_not_carry_are_played_as_others(tmp_path: Path) -> None:
    def program(rank: int) -> list[Op]:
        return [Op("all_reduce", dtype="Float8_e5m2" if rank == 2 else "Float8_e4m3fn")]

    score = score_of_dumps([write(Flight(programs(4, program)), tmp_path)])
    assert [line for line in score.assumed if line.startswith("gloo")] == [
        "gloo does not carry float8_e4m3fn: uint8 is played for it",
        "gloo does not carry float8_e5m2: int8 is played for it",
    ]
    assert play(score, deadline=DEADLINE_S).verdict == score.verdict == "datatype mismatch: 2"


EVERY = (
    Op("all_reduce"), Op("allreduce_coalesced", sizes=((4,), (2,))), Op("broadcast"), Op("_broadcast_oop"),
    Op("reduce"), Op("all_gather", outputs=((4,), (4,))), Op("_all_gather_base", outputs=((8,),)),
    Op("all_gather_into_tensor_coalesced", sizes=((4,), (2,)), outputs=((8,), (4,))),
    Op("reduce_scatter", sizes=((4,), (4,)), outputs=((4,),)),
    Op("_reduce_scatter_base", sizes=((8,),), outputs=((4,),)),
    Op("all_to_all", sizes=((4,), (4,))), Op("alltoall_base"),
    Op("all_to_all_v_single", sizes=((5,),), outputs=((3,),)), Op("barrier", sizes=()),
    Op("all_reduce_barrier", sizes=((1,),)),
)  # fmt: skip


def test_every_call_that_torch_records_is_played(tmp_path: Path) -> None:
    needs(Can.REDUCE_SCATTER, Can.ALL_TO_ALL)
    score = score_of_dumps([write(Flight(programs(2, lambda rank: list(EVERY))), tmp_path)])
    source = pytest_file(score)
    assert "is not played" not in source
    assert all(len(part.calls) == len(EVERY) for part in score.parts)
    assert play(score, deadline=DEADLINE_S).verdict == "all returned", source


INTO_THE_FILE = '"""\nprint("run")\n#\\'


def test_nothing_of_a_dump_is_run(tmp_path: Path) -> None:
    target = tmp_path / "was-here"

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (target,)

    flight = Flight(
        programs(3, lambda rank: [Op("all_reduce", "g"), Op("all_reduce")]), {"g": (INTO_THE_FILE, (0, 1, 2))}
    )
    dumps = write(flight, tmp_path / "dumps")
    hostile = flight.dump(1)
    for entry in hostile["entries"]:
        entry |= {
            "profiling_name": f"nccl:{INTO_THE_FILE}",
            "input_dtypes": [INTO_THE_FILE],
            "input_sizes": [[-(1 << 62)]],
        }
        entry["frames"] = [{"name": INTO_THE_FILE, "filename": INTO_THE_FILE, "line": 1}]
    (dumps / "nccl_trace_rank_1").write_bytes(torch_pickle(hostile))
    (dumps / "nccl_trace_rank_2").write_bytes(pickle.dumps({"entries": [{"frames": Evil()}]}))
    test = tmp_path / "test_it.py"
    done = replayed("--as-test", test, dumps)
    assert done.exit_code in (0, 1), done.output
    assert "nccl_trace_rank_2 has at byte" in done.output
    assert "which imports; that is not read" in done.output
    assert not target.exists()
    called = {ast.unparse(node.func) for node in ast.walk(ast.parse(test.read_text())) if isinstance(node, ast.Call)}
    assert called <= {"pytest.mark.ranks", "dist.new_group", "dist.all_reduce", "torch.ones", "range"}


@pytest.mark.parametrize(
    ("there", "here", "same"),
    [
        ("missing call: 2", "missing call: 2", True),
        ("missing call: 2", "missing call: 1", False),
        ("missing call: 2", "extra call: 2", False),
        ("died: 2, 5", "died: 5, 2", True),
        ("deadlock: 3", "group mismatch: 3", True),
        ("deadlock: 3", "group mismatch: 1", False),
        ("unmatched message: nobody in the majority", "unmatched message: 1", True),
        ("unmatched message: nobody in the majority", "missing call: 1", False),
        ("nobody known to be at fault", "all returned", True),
        ("nobody known to be at fault", "missing call: 1", False),
    ],
)
def test_a_finding_is_the_same_where_dumps_knew_less(there: str, here: str, same: bool) -> None:
    assert same_finding(there, here, of_dumps=True) is same


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ("deadlock: 3", "group mismatch: 3"),
        ("group mismatch: 3", "call ordering: 3"),
        ("unmatched message: nobody in the majority", "unmatched message: 1"),
    ],
)
def test_of_what_was_seen_whole_another_kind_is_another_finding(there: str, here: str) -> None:
    assert not same_finding(there, here)
    assert same_finding(there, there)


def test_of_torchcomms_dumps_are_played_without_messages(tmp_path: Path) -> None:
    def program(rank: int) -> list[Op]:
        spoken = [send(1)] if rank == 0 else [recv(0)] if rank == 1 else []
        step = [Op("all_reduce"), *spoken, Op("broadcast", line=11), Op("barrier", sizes=(), line=12)]
        return [*step, *step, *(op for op in step if rank != 3 or op.name != "broadcast")]

    flight = Flight(programs(4, program))
    for rank in range(4):
        (tmp_path / f"comm_lib_trace_rank_{rank}").write_bytes(torch_pickle(as_torchcomms(flight, rank)))
    score = score_of_dumps([tmp_path])
    assert any("with whom TorchComms's messages are exchanged: they are not played" in line for line in score.assumed)
    assert play(score, deadline=DEADLINE_S).verdict == score.verdict == "missing call: 3"


def test_of_two_faults_either_is_the_same(tmp_path: Path) -> None:
    halves = {"1": ("a", (0, 1, 2, 3)), "2": ("b", (4, 5, 6, 7))}
    summed = {name: Op("all_reduce", name) for name in halves}
    program = {rank: [summed["1" if rank < 4 else "2"]] * (4 if rank in (1, 6) else 5) for rank in range(8)}
    score = score_of_dumps([write(Flight(program, halves), tmp_path)])
    assert (score.verdict, score.besides) == ("missing call: 1", ("missing call: 6",))
    assert play(replace(score, besides=()), deadline=DEADLINE_S).as_told(score)


@pytest.mark.parametrize("kind", [pytest.param("pickle", marks=pytest.mark.nightly), "JSON"])
def test_of_a_dump_that_is_torn_or_lies_comes_a_file_that_is_python(kind: str, tmp_path: Path) -> None:
    write(fuzzed(), tmp_path, prefix="rank_")
    raw = raws()[kind == "JSON"]
    wrong = (value_as(key, value) for key, value in wrong_values()) if kind == "pickle" else ()
    for mutant in [*list(mutants(raw))[::MUTANTS_EVERY], *wrong]:
        (tmp_path / "rank_0").write_bytes(mutant)
        for most in (None, 2):
            ast.parse(pytest_file(score_of_dumps([tmp_path], most=most)))


def value_as(key: str, value: Any) -> bytes:
    """A dump in all of whose entries that is the value of `key`."""
    dump = fuzzed().dump(0)
    for entry in dump["entries"]:
        entry[key] = value
    return pickle.dumps(dump)


@pytest.mark.parametrize("peer", [5, 7])
def test_a_message_for_nobody_is_no_error(peer: int, tmp_path: Path) -> None:
    flight = Flight({0: [Op("all_reduce"), Op("all_reduce")], 1: [Op("all_reduce")] * 2})
    dump = flight.dump(0)
    dump["entries"][1] |= {"profiling_name": f"nccl:send 0->{peer}", "is_p2p": True}
    write(flight, tmp_path)
    (tmp_path / "nccl_trace_rank_0").write_bytes(torch_pickle(dump))
    score = score_of_dumps([tmp_path])
    assert score.parts[0].calls[1].peer == NOBODY
    pytest_file(score)


def test_what_is_there_is_said_where_it_is_no_dump(tmp_path: Path) -> None:
    assert "No such file or directory" in replayed(tmp_path / "nothing").output
    done = replayed(tmp_path)
    assert done.exit_code == 2
    assert "no dumps of a flight recorder" in done.output
