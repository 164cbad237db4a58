"""`rankdrill explain … --html FILE --perfetto FILE`: what was left of a job, to look at; nothing in it is executed."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from click.testing import CliRunner, Result

from rankdrill.cli import main
from rankdrill.diagnosis import Confidence, Finding, FindingKind, Side
from rankdrill.explain.explanation import Cause, Explanation
from rankdrill.explain.flight.explained import read_dumps
from rankdrill.explain.flight.pictured import picture_of_dumps, shifts_in
from rankdrill.explain.pictured import AROUND, MOST_LANES, Left, most_steps, pictured
from rankdrill.explain.recording import look_into
from rankdrill.explain.recording.pictured import picture_of_recording
from rankdrill.report import run_as_html, run_as_trace
from rankdrill.watchdog.answered import answer_left_in, heading
from tests.cli.test_explain import hung
from tests.explain.flights import STEP_NS, Flight, Op, dump_of, recv, send, torch_pickle, write
from tests.explain.test_clocks import move_to_another_machine
from tests.explain.test_recording import leave_one_out, line_of
from tests.recording.jobs import await_that, explained, job
from tests.report.browser import data_of, in_a_browser, opened, text_of
from tests.report.test_run_html import HOSTILE, record
from tests.watchdog.test_watchdog import LONG, report_of, watched

HOUR_NS = 3600 * 10**9
UNFOLD = '[...document.querySelectorAll("button")].find((b) => b.textContent === "unfold").click()'


def explain(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["explain", *map(str, arguments)])


def page_of(dumps: Path) -> str:
    """As the command writes it."""
    file = dumps.with_suffix(".html")
    result = explain(dumps, "--html", file)
    assert result.exit_code in (0, 1), result.output
    return file.read_text()


# ------------------------------------------------------------------------------------ dumps


@in_a_browser
def test_of_dumps_it_says_who_is_at_fault_who_waits_and_how_to_read_it(tmp_path: Path) -> None:
    dom = opened(tmp_path, page_of(write(hung(), tmp_path / "dumps")))
    shown = text_of(dom)
    assert "missing call: rank 2 leaves out broadcast #5 on 'default', at /job/train.py:11 in step" in shown
    assert "certain: all 4 members of 'default' have recorded call #5" in shown
    assert "The last collectives of 'default', by number" in shown
    assert "ranks 0, 1, 3 wait for rank 2" in shown
    assert "Each rank's times are by the clock of its own host" in shown
    assert "Where ranks were seen last" in shown
    assert f"rankdrill replay {tmp_path / 'dumps'}" in shown
    assert 'class="label culprit"' in dom
    assert 'class="node culprit"' in dom
    assert 'class="bar collective fault open"' in dom


@in_a_browser
def test_a_mark_is_where_a_call_was_issued_and_claims_no_end(tmp_path: Path) -> None:
    click = 'document.querySelectorAll("rect.bar")[{}].dispatchEvent(new Event("click"))'
    page = page_of(write(hung(), tmp_path / "dumps"))
    first = text_of(opened(tmp_path, page, doing=click.format(0)))
    assert "was over when this was written" in first
    assert "took" not in first
    last = opened(tmp_path, page, doing=click.format(4))
    assert "had not come out of it, waits for ranks 0, 1, 3" in text_of(last)


@pytest.mark.nightly
@in_a_browser
def test_1024_ranks_of_200_calls_fold_and_unfold(tmp_path: Path) -> None:
    calls = [Op("all_reduce", line=10), Op("broadcast", line=11), Op("all_reduce", line=12)] * 67
    programs = dict.fromkeys(range(1024), calls[:200])
    programs[517] = [*calls[:181], *calls[182:201]]
    page = page_of(write(Flight(programs), tmp_path / "dumps"))
    assert len(page) < 3 << 20
    folded = opened(tmp_path, page)
    assert folded.count('<text x="0"') == 2, "the culprit, and all others in one line"
    assert "missing call: rank 517 leaves out broadcast #182" in text_of(folded)
    unfolded = opened(tmp_path, page, doing=UNFOLD)
    assert unfolded.count('<text x="14"') == 64
    assert unfolded.count("<rect") < 12_000


def hostile_dump(rank: int) -> bytes:
    dump = dump_of(Flight({each: [Op("all_reduce"), Op("barrier")][: 2 - each] for each in range(2)}), rank)
    for entry in dump["entries"]:
        entry["profiling_name"] = f"nccl:{HOSTILE}"
        entry["process_group"] = ("0", HOSTILE)
        entry["frames"] = [{"name": HOSTILE, "filename": f"/{HOSTILE}.py", "line": 1}]
    dump["pg_config"]["0"]["desc"] = HOSTILE
    return torch_pickle(dump)


@in_a_browser
def test_names_with_html_and_control_characters_are_text(tmp_path: Path) -> None:
    dumps = tmp_path / "<img src=x onerror=alert(1)>"
    dumps.mkdir()
    for rank in range(2):
        (dumps / f"rank_{rank}").write_bytes(hostile_dump(rank))
    file, trace = tmp_path / "hostile.html", tmp_path / "trace.json"
    assert explain(dumps, "--html", file, "--perfetto", trace).exit_code in (0, 1)
    page = file.read_text()
    assert page.count("<script") == 2
    dom = opened(tmp_path, page)
    assert "<img" not in dom
    assert "<title>run</title>" not in dom
    assert "<img src=x onerror=alert(1)>" in text_of(dom)
    json.loads(trace.read_text())


def test_the_trace_has_each_call_where_it_was_issued(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    assert explain(write(hung(), tmp_path / "dumps"), "--perfetto", file).exit_code == 1
    trace = json.loads(file.read_text())
    assert trace["otherData"]["verdict"].startswith("missing call: rank 2 leaves out broadcast #5")
    assert any("by the clock of its own host" in note for note in trace["otherData"]["notes"])
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {event["pid"] for event in slices} == {0, 1, 2, 3}
    ended = [event["dur"] for event in slices if event["args"]["state"] == "ended"]
    assert ended == [0.0] * 16
    assert [event["name"] for event in slices if "at fault" in event["args"]] == ["all_reduce #5"]


def test_messages_have_their_other_end(tmp_path: Path) -> None:
    dumps = write(Flight({0: [send(1), send(1)], 1: [recv(0)]}), tmp_path / "dumps")
    steps = data_of(page_of(dumps))
    texts = {steps["strings"][number] for lane in steps["lanes"] for number in lane["steps"]["text"]}
    assert texts == {"collective.send on 'default' (to rank 1)", "collective.recv on 'default' (from rank 0)"}


def test_clocks_that_are_hours_apart_are_brought_together_and_told(tmp_path: Path) -> None:
    flight = hung()
    dumps = write(flight, tmp_path / "dumps")
    for rank in (1, 3):
        dump = dump_of(flight, rank)
        for entry in dump["entries"]:
            entry["time_created_ns"] += HOUR_NS
        (dumps / f"nccl_trace_rank_{rank}").write_bytes(torch_pickle(dump))
    read = read_dumps([dumps])
    shifts = shifts_in(read.job)
    assert (shifts[0], shifts[2]) == (0, 0)
    assert all(abs(shifts[rank] + HOUR_NS) < 100 * STEP_NS for rank in (1, 3))
    data = data_of(page_of(dumps))
    told = "By the calls that ranks had in common, the clocks of ranks 1, 3 were about 3600 s ahead: that is taken out"
    assert f"{told} here." in data["notes"]
    assert max(begin for lane in data["lanes"] for begin in lane["steps"]["begin"]) < 1_000_000


def test_whoever_left_no_dump_has_a_line(tmp_path: Path) -> None:
    dumps = write(replace(hung(), gone=frozenset({1})), tmp_path / "dumps")
    data = data_of(page_of(dumps))
    told = [data["strings"][lane["told"]] for lane in data["lanes"]]
    assert told[1] == "left no dump"
    assert data["lanes"][1]["steps"]["begin"] == []


def test_whatever_a_damaged_dump_says_there_is_a_page(tmp_path: Path) -> None:
    dumps = write(hung(), tmp_path / "dumps")
    whole = (dumps / "nccl_trace_rank_2").read_bytes()
    drawn = random.Random(13)
    for _ in range(300):
        raw = bytearray(whole)
        for _ in range(drawn.randint(1, 4)):
            raw[drawn.randrange(len(raw))] = drawn.randrange(256)
        (dumps / "nccl_trace_rank_2").write_bytes(raw)
        shown = picture_of_dumps(read_dumps([dumps]), "")
        assert data_of(run_as_html(shown))["lanes"]
        json.loads(run_as_trace(shown))


def test_the_lines_with_which_ranks_made_their_calls_are_stacks_of_which_equal_ones_are_one(tmp_path: Path) -> None:
    data = data_of(page_of(write(hung(), tmp_path / "dumps")))
    assert [stack["ranks"] for stack in data["stacks"]] == [[2], [0, 1, 3]]
    said = data["stacks"][1]["text"]
    assert said.startswith("in collective.broadcast #5 on 'default'")
    assert said.endswith('  File "/job/train.py", line 11 in step\n  File "/job/train.py", line 99 in <module>')
    assert any(note.startswith("Stacks are those with which calls were made") for note in data["notes"])
    for rank in range(4):
        dump = dump_of(hung(), rank)
        for entry in dump["entries"]:
            entry["frames"] = []
        (tmp_path / "dumps" / f"nccl_trace_rank_{rank}").write_bytes(torch_pickle(dump))
    without_lines = data_of(page_of(tmp_path / "dumps"))
    assert without_lines["stacks"] == []
    assert not any(note.startswith("Stacks") for note in without_lines["notes"])


# ------------------------------------------------------------------------------------ what is shown


def explanation(world_size: int, number: int = 5) -> Explanation:
    side = Side((0,), f"leaves out all_reduce #{number} on 'default'", (None,))
    finding = Finding(FindingKind.MISSING, f"all_reduce #{number} on 'default'", "", (side,), (0,))
    return Explanation("a job", world_size, (Cause(finding, Confidence.CERTAIN, ("it is so",)),))


def test_the_call_that_it_is_about_is_shown_however_far_back_it_is() -> None:
    most = most_steps(4000)
    left = {0: Left("waits", (1,), [record(number) for number in range(most + 100)], 7)}
    (lane, *_) = pictured(explanation(4000), left, "").lanes
    numbers = [each.step.sequence for each in lane.records]
    assert numbers == [*range(5 - AROUND, 5 + AROUND + 1), *range(100, most + 100)]
    assert lane.dropped == 7 + 100 - len(range(5 - AROUND, 5 + AROUND + 1))


def test_a_call_that_only_words_name_is_marked() -> None:
    shown = pictured(explanation(1), {0: Left("waits", (), [record(5)])}, "")
    assert shown.is_at_fault(shown.lanes[0], record(5))
    assert not shown.is_at_fault(shown.lanes[0], record(4))


def test_of_a_world_larger_than_any_page_those_are_shown_of_whom_there_is_something() -> None:
    shown = pictured(explanation(MOST_LANES + 1), {7: Left("waits")}, "")
    assert [lane.rank for lane in shown.lanes] == [0, 7]


def test_blocks_are_what_the_terminal_says() -> None:
    told = replace(explanation(1), fits=("another",), gaps=("a gap", "and one more"))
    blocks = [(block.heading, block.text) for block in pictured(told, {}, "").blocks]
    assert blocks == [
        ("", "certain: it is so"),
        ("this fits too:", "another"),
        ("what was not there to judge by:", "a gap\nand one more"),
    ]


# ------------------------------------------------------------------------------------ recordings


@in_a_browser
def test_of_a_recorded_hang_it_shows_the_stacks_that_its_watchdog_left(tmp_path: Path) -> None:
    directory, file, trace = tmp_path / "record", tmp_path / "page.html", tmp_path / "trace.json"
    with job(leave_one_out, 4, directory, first=watched(LONG)):
        report_of(directory)
        assert explain(directory, "--html", file, "--perfetto", trace).exit_code == 1
    dom = opened(tmp_path, file.read_text())
    shown = text_of(dom)
    assert "missing call: rank 2 leaves out all_reduce #2 on 'default'" in shown
    assert f"test_recording.py:{line_of('left out')} in leave_one_out" in shown
    assert "Where they were" in shown
    assert re.search(r'File "[^"]*test_recording.py", line \d+ in leave_one_out', shown)
    assert f"rankdrill replay {directory}" in shown
    assert "Each rank's times are by the clock" not in shown, "it is one host"
    assert 'class="label culprit"' in dom
    assert 'class="node culprit"' in dom, "who waits for whom"
    assert {event["pid"] for event in json.loads(trace.read_text())["traceEvents"]} == {0, 1, 2, 3}


def send_to_the_next(rank: int) -> None:
    """No call brings together when ranks were where: a broadcast ends on its root whoever has come."""
    for _ in range(4):
        dist.broadcast(torch.ones(2), src=0)
    dist.recv(torch.ones(2), src=1 - rank)


def test_clocks_that_nothing_brings_together_are_told(tmp_path: Path) -> None:
    directory = tmp_path / "record"
    with job(send_to_the_next, 2, directory) as running:
        explained(directory, lambda found: bool(found.causes))
        running.kill()
    assert picture_of_recording(look_into(directory), directory).notes == ()
    move_to_another_machine(directory, 1, 1000 * 10**9)
    notes = picture_of_recording(look_into(directory), directory).notes
    assert notes[0].startswith("The clocks of 2 hosts are brought together")
    assert notes[1].startswith("Not that of rank 1: no collective tells")


def test_clocks_that_collectives_bring_together_are_not_complained_of(tmp_path: Path) -> None:
    directory = tmp_path / "record"
    with job(leave_one_out, 4, directory) as running:
        explained(directory, lambda found: any(cause.finding.culprits for cause in found.causes))
        running.kill()
    move_to_another_machine(directory, 1, 1000 * 10**9)
    (note,) = picture_of_recording(look_into(directory), directory).notes
    assert note.startswith("The clocks of 2 hosts are brought together")


def test_a_stack_that_is_older_than_the_newest_step_is_not_shown(tmp_path: Path) -> None:
    printed = 'Thread 0x7f (most recent call first):\n  File "a.py", line 1 in step\n'
    (tmp_path / "a.stacks").write_text(f"\n{heading()}computing\n{printed}")
    assert "computing\nThread 0x7f" in answer_left_in(tmp_path, "a", 1)
    assert answer_left_in(tmp_path, "a", 1 << 62) == ""
    assert answer_left_in(tmp_path, "b") == ""


def test_whatever_a_damaged_record_says_there_is_a_page(tmp_path: Path) -> None:
    directory = tmp_path / "record"
    with job(leave_one_out, 2, directory) as running:
        await_that(lambda: len(list(directory.glob("*.ledger"))) == 2, "both record")
        explained(directory, lambda found: bool(found.places))
        running.kill()
    drawn = random.Random(7)
    ledger = min(directory.glob("*.ledger"))
    whole = ledger.read_bytes()[: 1 << 16]
    ledger.with_suffix(".stacks").write_bytes(bytes(drawn.randrange(256) for _ in range(5000)))
    for _ in range(100):
        raw = bytearray(whole[: drawn.randrange(len(whole))])
        for _ in range(drawn.randint(0, 40) if raw else 0):
            raw[drawn.randrange(min(len(raw), 8192))] = drawn.randrange(256)
        ledger.write_bytes(raw)
        shown = picture_of_recording(look_into(directory), directory)
        assert len(data_of(run_as_html(shown))["lanes"]) >= 1
        json.loads(run_as_trace(shown))


@pytest.mark.parametrize("option", ["--html", "--perfetto"])
def test_a_file_that_cannot_be_is_refused_at_once(option: str, tmp_path: Path) -> None:
    result = explain(write(hung(), tmp_path / "dumps"), option, tmp_path / "nowhere" / "file")
    assert result.exit_code == 2
    assert f"{option} {tmp_path / 'nowhere' / 'file'}: there is no directory" in result.output
