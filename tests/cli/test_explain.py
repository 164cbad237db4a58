"""`rankdrill explain`: what it reads, what it says, and that what dumps say is never more than text."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rankdrill.cli import main
from rankdrill.explain.flight.load import MOST_BYTES
from rankdrill.explain.flight.sources import Source
from tests.explain.flights import Flight, Op, dump_of, torch_pickle, write

BOUND_S = 120.0
SCREEN = 40


def summed(line: int = 10) -> Op:
    return Op("all_reduce", line=line)


def hung(ranks: int = 4, odd: int = 2) -> Flight:
    """The rank `odd` leaves a broadcast out."""
    calls = [summed(), Op("broadcast", line=11), summed(12)]
    return Flight({rank: calls * 2 if rank != odd else [*calls, calls[0], calls[2]] for rank in range(ranks)})


def explain(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["explain", *map(str, arguments)])


def test_the_cause_comes_first_and_the_exit_code_is_1(tmp_path: Path) -> None:
    result = explain(write(hung(), tmp_path / "dumps"))
    assert result.exit_code == 1
    first, second, why, *_ = result.output.splitlines()
    assert first.startswith("missing call: rank 2 leaves out broadcast #5 on 'default', at /job/train.py:11 in step")
    assert ", and enters all_reduce #5 on 'default'" in first
    assert second.startswith("ranks 0, 1, 3 enter broadcast #5 on 'default'")
    assert why.startswith("certain: ")
    assert "victims: ranks 0, 1, 3" in result.output


def test_where_nothing_is_found_the_exit_code_is_0(tmp_path: Path) -> None:
    result = explain(write(Flight({rank: [summed()] * 3 for rank in range(3)}), tmp_path / "dumps"))
    assert result.exit_code == 0
    assert result.output.startswith("nothing there shows which rank is at fault\n")


def test_the_document_says_the_same(tmp_path: Path) -> None:
    dumps, file = write(hung(), tmp_path / "dumps"), tmp_path / "why.json"
    assert explain(dumps, "--json", file).exit_code == 1
    document = json.loads(file.read_text())
    assert (document["format"], document["version"], document["world_size"]) == ("rankdrill explain", 1, 4)
    assert (document["culprits"], document["victims"], document["gaps"]) == ([2], [0, 1, 3], [])
    (cause,) = document["causes"]
    assert (cause["confidence"], cause["finding"]["kind"]) == ("certain", "missing call")
    assert cause["finding"]["sides"][0]["sites"][0]["line"] == 11
    assert [place["ranks"] for place in document["places"]] == [[0, 1, 3], [2]]


@pytest.mark.parametrize("ranks", [4, 1024])
def test_however_many_ranks_it_is_a_screen(ranks: int, tmp_path: Path) -> None:
    dumps = write(hung(4), tmp_path / "dumps")
    everybody = {"0": ("default_pg", tuple(range(ranks)))}
    flight = hung(4)
    flight.groups = everybody
    usual, odd = torch_pickle(flight.dump(0)), torch_pickle(flight.dump(2))
    for rank in range(ranks):
        (dumps / f"nccl_trace_rank_{rank}").write_bytes(odd if rank == 2 else usual)
    result = explain(dumps)
    assert result.exit_code == 1
    assert "rank 2 leaves out broadcast #5" in result.output
    assert len(result.output.splitlines()) <= SCREEN
    assert max(map(len, result.output.splitlines())) < 700


def test_however_much_went_wrong_it_is_a_screen(tmp_path: Path) -> None:
    groups = {str(number): (f"pair {number}", (2 * number, 2 * number + 1)) for number in range(20)}
    odd = {rank: [Op("all_reduce", str(rank // 2), ((4 + rank,),), line=rank)] * 3 for rank in range(40)}
    dumps = write(Flight(odd, groups), tmp_path / "dumps", prefix="rank_")
    write(Flight(odd, groups), dumps, as_json=True, prefix="rank_")
    for rank in range(30, 40):
        (dumps / f"rank_{rank}").write_bytes(b"\x80\x02R.")
    result = explain(dumps)
    assert result.exit_code == 1
    assert "more causes, in --json" in result.output
    assert len(result.output.splitlines()) <= SCREEN


def test_files_are_read_by_themselves_and_others_lying_there_are_not(tmp_path: Path) -> None:
    dumps = write(hung(), tmp_path / "dumps")
    (dumps / "train.log").write_text("epoch 1")
    (dumps / "events.out.tfevents.17000").write_bytes(b"\x18\x00\x00")
    (dumps / "checkpoint_3").write_bytes(b"PK\x03\x04")
    (dumps / "core.1234").mkdir()
    assert explain(dumps).output == explain(*sorted(dumps.glob("nccl_trace_rank_*"))).output


def test_directories_of_hosts_are_looked_into(tmp_path: Path) -> None:
    write(hung(), tmp_path)
    for rank in range(4):
        host = tmp_path / f"host{rank // 2}"
        host.mkdir(exist_ok=True)
        (tmp_path / f"nccl_trace_rank_{rank}").rename(host / f"nccl_trace_rank_{rank}")
    assert "rank 2 leaves out" in explain(tmp_path).output


def test_of_two_files_that_claim_one_rank_one_is_read_and_that_is_said(tmp_path: Path) -> None:
    dumps = write(hung(), tmp_path / "dumps", prefix="rank_")
    write(hung(odd=3), dumps, as_json=True, prefix="rank_")
    result = explain(dumps)
    assert "missing call: rank 2 leaves out" in result.output
    assert "rank 0 is claimed by rank_0, which is read, and rank_0.json, not read" in result.output


def test_dumps_of_two_jobs_are_told_apart_by_prefix(tmp_path: Path) -> None:
    write(hung(), tmp_path, prefix="one_")
    write(hung(odd=3), tmp_path, prefix="two_")
    refused = explain(tmp_path)
    assert refused.exit_code == 2
    assert "'one_', 'two_'; choose with --prefix" in refused.output
    assert "rank 3 leaves out" in explain(tmp_path, "--prefix", "two_").output


def test_escapes_and_markup_are_shown_as_text(tmp_path: Path) -> None:
    flight = hung()
    evil = "\x1b[2J\x1b]0;owned\x07\r\n[bold red]x[/] \u202e\udc80"
    flight.groups = {"0": (evil, (0, 1, 2, 3))}
    for rank in range(4):
        dump = dump_of(flight, rank)
        for entry in dump["entries"]:
            entry["frames"][2]["filename"] = evil
            entry["frames"][2]["name"] = evil
            entry["profiling_name"] = entry["profiling_name"] + evil
        (tmp_path / f"rank_{rank}").write_bytes(torch_pickle(dump))
    (tmp_path / "rank_3").write_bytes(b"\x80\x02cos\n\x1b[2J\n.")
    (tmp_path / "\x1b[2Jrank_7").write_bytes(b"")
    run = subprocess.run(
        [sys.executable, "-m", "rankdrill", "explain", *map(str, tmp_path.glob("rank_*"))],
        capture_output=True, timeout=BOUND_S, env={**os.environ, "FORCE_COLOR": "1"},
    )  # fmt: skip
    assert run.returncode == 1, run.stderr
    text = run.stdout.decode()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)  # rich's own styles
    assert not set(plain) & {"\x1b", "\x07", "\r", "\u202e"}
    assert "[bold red]x[/]" in plain
    assert "\\x1b[2J" in plain
    assert max(map(len, plain.splitlines())) <= 600


def test_a_file_of_gigabytes_and_a_pipe_are_refused_and_the_rest_is_explained(tmp_path: Path) -> None:
    dumps = write(hung(ranks=6), tmp_path / "dumps")
    os.truncate(dumps / "nccl_trace_rank_4", MOST_BYTES * 40)
    (dumps / "nccl_trace_rank_5").unlink()
    os.mkfifo(dumps / "nccl_trace_rank_5")
    result = explain(dumps)
    assert "rank 2 leaves out broadcast #5" in result.output
    assert "nccl_trace_rank_4 has 5120 MiB; of a dump at most 128 are read" in result.output


def test_many_dumps_are_read_by_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rankdrill.explain.flight import reading

    dumps = write(hung(ranks=16), tmp_path / "dumps")
    (dumps / "nccl_trace_rank_9").write_bytes(b"\x80\x02R.")
    alone = explain(dumps).output
    started: list[object] = []
    start = reading._started

    def started_too(share: Sequence[Source]) -> subprocess.Popen[bytes]:
        started.append(share)
        return start(share)

    monkeypatch.setattr(reading, "_started", started_too)
    monkeypatch.setattr(reading, "WORTH_BYTES", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    assert explain(dumps).output == alone
    assert len(started) == 2
    monkeypatch.setattr(reading, "_HELPER", "raise SystemExit(1)")
    assert explain(dumps).output == alone


def test_processes_that_read_along_start_without_what_explains() -> None:
    code = "import sys, rankdrill.explain.flight.reading; sys.exit('rankdrill.diagnosis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere: there is no such file or directory"),
        ([], "Missing argument 'PATH...'"),
        (["{empty}"], "no dumps of a flight recorder; torch writes one file a rank"),
        (["{empty}/notes.md"], "notes.md: its name does not end with a rank"),
        (["{empty}", "--json", "/"], "--json /: is a directory; give a file"),
    ],
)
def test_a_mistake_in_the_command_is_one_line_and_exit_code_2(arguments: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "notes.md").touch()
    result = explain(*(argument.format(empty=tmp_path) for argument in arguments))
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert "Traceback" not in result.output


def test_it_imports_no_torch(tmp_path: Path) -> None:
    dumps = write(hung(), tmp_path / "dumps")
    code = f"""
import sys
from click.testing import CliRunner
from rankdrill.cli import main
assert CliRunner().invoke(main, ["explain", {str(dumps)!r}]).exit_code == 1
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=BOUND_S).returncode == 0


def test_numbered_files_that_are_no_dumps_are_none(tmp_path: Path) -> None:
    (tmp_path / "checkpoint_1000").write_bytes(b"PK\x03\x04")
    (tmp_path / "fr_trace_20261123_141210.txt").write_text("=== FR Trace ===")
    (tmp_path / "step_12.json").write_text('{"loss": 1.0}')
    result = explain(tmp_path)
    assert result.exit_code == 2
    assert "no dumps of a flight recorder" in result.output
