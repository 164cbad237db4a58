"""`rankdrill run`: scripts that know nothing of rankdrill, what they find, and what is said where ranks come apart."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.covering import thinned
from tests.inner.client import Server
from tests.report.browser import data_of

BOUND_S = 120.0
HEAD = "import os, sys, time\nimport torch\nimport torch.distributed as dist\n"
INIT = 'dist.init_process_group("gloo")\nrank, size = dist.get_rank(), dist.get_world_size()\n'

Run = Callable[..., subprocess.CompletedProcess[str]]
"""``run(script, *arguments, options=...)``: what ``rankdrill run`` does with a file of that text."""


@pytest.fixture
def run(forking: Callable[[], Server], tmp_path: Path) -> Run:
    """See `Run`; forked from a process that has torch, which each would import anew."""

    def ran(
        text: str, *arguments: str, options: tuple[str, ...] = ("-n", "3"), script: str = "script.py", init: bool = True
    ) -> subprocess.CompletedProcess[str]:
        (tmp_path / "script.py").write_text(HEAD + (INIT if init else "") + textwrap.dedent(text))
        args = ["run", *options, script, *arguments]
        with open(os.devnull) as null, open(tmp_path / "out", "wb") as stdout, open(tmp_path / "err", "wb") as stderr:
            streams = (null.fileno(), stdout.fileno(), stderr.fileno())
            running = forking().fork(args, tmp_path, dict(os.environ), streams, module="rankdrill")
            code = running.wait(BOUND_S)
        told = [(tmp_path / name).read_text() for name in ("out", "err")]
        return subprocess.CompletedProcess(args, code, *told)

    return ran


def test_a_script_finds_what_torchrun_gives_it(run: Run) -> None:
    done = run("""
        total = torch.ones(1)
        dist.all_reduce(total)
        assert __name__ == "__main__" and sys.modules["__main__"].__file__ == "script.py"
        assert os.environ["LOCAL_RANK"] == str(rank) and os.environ["WORLD_SIZE"] == "3"
        assert sys.path[0] == os.getcwd()
        print("arguments", sys.argv, "sum", int(total))
        """, "--lr", "0.1", "-n", "5")  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = "arguments ['script.py', '--lr', '0.1', '-n', '5'] sum 3"
    assert sorted(done.stdout.splitlines()) == [f"[rank {rank}] {said}" for rank in range(3)]
    assert done.stderr == ""


def test_a_module_finds_its_neighbours(run: Run, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "near.py").write_text("WORD = 'near'\n")
    (tmp_path / "package" / "train.py").write_text(
        HEAD + INIT + "from package.near import WORD\nprint(WORD, sys.argv[1:])\n"
    )
    done = run("", "--flag", options=("-n", "2", "-m"), script="package.train")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[rank {rank}] near ['--flag']" for rank in range(2)]


def test_who_leaves_a_collective_out_is_named_at_once(run: Run) -> None:
    done = run("""
        for step in range(5):
            if not (step == 3 and rank == 1):
                dist.all_reduce(torch.ones(4))
        dist.barrier()
        """)  # fmt: skip
    assert done.returncode == 1
    # One of five alike is missing; it shows where the others make the last one.
    assert "missing call: rank 1 leaves out all_reduce #4 on 'default', at script.py:9 in <module>" in done.stderr
    assert "rankdrill run --no-contracts …" in done.stderr
    assert done.stderr.endswith("to run it again:\n  rankdrill run -n 3 script.py\n")


def test_who_waits_for_ever_is_not_told_to_compare_less(run: Run) -> None:
    """It would wait as long without being compared."""
    done = run("if rank != 1:\n    dist.barrier()")
    assert done.returncode == 1
    assert "missing call: rank 1 leaves out barrier #0 on 'default'" in done.stderr
    assert "--no-contracts" not in done.stderr


def test_an_error_is_shown_from_the_script_on_and_its_victims_below(run: Run) -> None:
    done = run("""
        if rank == 1:
            raise ValueError("no data")
        dist.barrier()
        """)  # fmt: skip
    assert done.returncode == 1
    assert "rank 1 raised ValueError: no data\n" in done.stderr
    traceback = done.stderr.partition("Traceback (most recent call last):\n")[2].partition("\n\n")[0]
    assert re.findall(r'File "(.*?)"', traceback) == ["script.py"]
    assert "victims:\n  ranks 0, 2 wait in collective.barrier #0 on 'default' for rank 1" in done.stderr


@pytest.mark.parametrize(
    ("text", "code"),
    thinned(
        [
            ("if rank == 1: sys.exit(3)\ndist.barrier()", 3),
            ("sys.exit(7)", 7),
            ("if rank == 1: sys.exit(0)\ndist.barrier()", 1),
            ("sys.exit()", 0),
            ("sys.exit('all wrong')", 1),
            ("if rank == 1: os._exit(9)\ndist.barrier()", 1),
        ],
        2,
    ),
    ids=["one by 3", "all by 7", "one left early", "all well", "by a text", "one ended outright"],
)
def test_the_exit_code_is_the_scripts_own_or_1(run: Run, text: str, code: int) -> None:
    done = run(text)
    assert done.returncode == code, done.stderr
    assert (done.stderr == "") is (code == 0)


def test_what_a_script_leaves_to_its_end_is_done(run: Run) -> None:
    done = run("""
        import atexit, threading
        atexit.register(print, "at exit")
        threading.Thread(target=lambda: (time.sleep(0.2), print("in a thread"))).start()
        """)  # fmt: skip
    assert done.returncode == 0, done.stderr
    of_rank_1 = [line for line in done.stdout.splitlines() if line.startswith("[rank 1]")]
    assert of_rank_1 == ["[rank 1] in a thread", "[rank 1] at exit"]


def test_faults_strike_and_what_strikes_nothing_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "plan").write_text("rank 2: kill before collective.all_reduce #1  # half way\n")
    loop = "for _ in range(3):\n    dist.all_reduce(torch.ones(1))\n"
    done = run(loop, options=("-n", "3", "--plan", "plan"))
    assert done.returncode == 1
    waits = r"ranks? (0|1|0, 1) waits? in collective.all_reduce #0 .* for rank 2, at script.py:7"
    # On a busy machine gloo may have told them of it before they are ended.
    assert re.search(waits, done.stderr) or re.search(r"ranks? (0|1|0, 1) raised RuntimeError: .*gloo", done.stderr)
    assert re.search(r"rank 2 killed by SIGKILL.*, as planned", done.stderr)
    done = run(loop, options=("-n", "3", "--fault", "rank 0: delay(0.01) before collective.all_reduce"))
    assert done.returncode == 0, done.stderr
    done = run(loop, options=("-n", "3", "--fault", "rank 0: delay(0.01) before collective.broadcast"))
    assert done.returncode == 1
    assert "collective.broadcast" in done.stderr


def test_a_script_for_nccl_runs_on_gloo_if_asked(run: Run) -> None:
    text = """
        dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
        print(dist.get_backend())
        """
    done = run(text, options=("-n", "2", "--backend", "gloo"), init=False)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[rank 0] gloo", "[rank 1] gloo"]


def test_what_came_of_it_as_a_page_and_as_a_trace(run: Run, tmp_path: Path) -> None:
    options = ("-n", "3", "--html", "run.html", "--perfetto", "run.trace")
    done = run("if rank != 1: dist.all_reduce(torch.ones(1))", options=options)
    assert done.returncode == 1
    said = "missing call: rank 1 leaves out all_reduce #0 on 'default'"
    page = data_of((tmp_path / "run.html").read_text())
    assert page["headline"].startswith(said)
    assert page["repeat"].startswith("rankdrill run -n 3 --html run.html")
    trace = json.loads((tmp_path / "run.trace").read_text())
    assert trace["otherData"]["verdict"] == page["headline"]
    assert any(event["name"] == "all_reduce #0" and event["pid"] == 0 for event in trace["traceEvents"])


def test_the_document_says_who_and_what(run: Run, tmp_path: Path) -> None:
    done = run("if rank == 1: raise KeyError('loss')\ndist.barrier()", options=("-n", "2", "--json", "run.json"))
    document = json.loads((tmp_path / "run.json").read_text())
    assert (document["format"], document["version"]) == ("rankdrill run", 1)
    assert document["exit_code"] == done.returncode == 1
    assert document["command"] == ["run", "-n", "2", "--json", "run.json", "script.py"]
    assert (document["culprits"], document["victims"], document["world_size"]) == ([1], [0], 2)


def test_a_rank_that_waits_past_the_deadline_is_told_with_what_it_does(run: Run) -> None:
    done = run("if rank == 1: time.sleep(600)\ndist.barrier()", options=("-n", "2", "--deadline", "3"))
    assert done.returncode == 1
    assert "rank 1 was still running at the deadline" in done.stderr
    assert "script.py:6" in done.stderr
    assert "if that takes longer than the deadline of 3 s:\n  rankdrill run --deadline …\n" in done.stderr


def test_without_a_deadline_a_certain_hang_is_ended(run: Run) -> None:
    began = time.monotonic()
    done = run("if rank == 1: dist.recv(torch.ones(1), src=0)\ndist.barrier()", options=("-n", "2"))
    assert done.returncode == 1
    assert "rank" in done.stderr
    assert time.monotonic() - began < 100, "gloo gives up after 1 800 s"


def interrupted(
    text: str, up: Sequence[str], directory: Path, *options: str, by: Sequence[signal.Signals] = (signal.SIGINT,)
) -> tuple[int, str]:
    """The exit code of a script on two ranks, and what was said, where signals came once it had said it is `up`."""
    (directory / "script.py").write_text(HEAD + INIT + text)
    command = [sys.executable, "-m", "rankdrill", "run", "-n", "2", *options, "script.py"]
    running = subprocess.Popen(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert running.stdout is not None
        assert sorted(running.stdout.readline() for _ in up) == sorted(up)
        for each in by:
            running.send_signal(each)
            time.sleep(0.05)
        _, said = running.communicate(timeout=BOUND_S)
    finally:
        running.kill()
    return running.returncode, said


def test_ctrl_c_says_what_ranks_were_doing(tmp_path: Path) -> None:
    text = 'print("up", flush=True)\nif rank == 1: time.sleep(600)\ndist.barrier()\n'
    code, said = interrupted(
        text, ["[rank 0] up\n", "[rank 1] up\n"], tmp_path, "--json", "run.json", "--html", "run.html"
    )
    assert code == 130
    assert "rank 1 was still running when the run was interrupted, asleep (clock_nanosleep) at script.py:7" in said
    assert 'File "script.py", line 7 in <module>' in said
    assert "rank 0 waits in collective.barrier #0 on 'default' for rank 1, at script.py:8" in said
    assert said.endswith("interrupted by SIGINT\n")
    told = json.loads((tmp_path / "run.json").read_text())
    assert (told["exit_code"], told["culprits"], told["victims"]) == (130, [1], [0])
    assert told["interrupted"] == "SIGINT"
    assert "when the run was interrupted" in (tmp_path / "run.html").read_text()


@pytest.mark.parametrize(("by", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["SIGTERM", "SIGHUP"])
def test_a_signal_from_outside_says_what_ranks_were_doing(tmp_path: Path, by: signal.Signals, code: int) -> None:
    """A scheduler's, or that of a terminal that closes; a second one, and Ctrl-C beside it, change nothing."""
    text = 'print("up", flush=True)\nif rank == 1: time.sleep(600)\ndist.barrier()\n'
    came = (by, signal.SIGINT, by)
    left, said = interrupted(text, ["[rank 0] up\n", "[rank 1] up\n"], tmp_path, "--json", "run.json", by=came)
    assert left == code
    assert "rank 1 was still running when the run was interrupted, asleep (clock_nanosleep) at script.py:7" in said
    assert said.endswith(f"interrupted by {by.name}\n")
    assert "Traceback" not in said.partition("to run it again")[2]
    told = json.loads((tmp_path / "run.json").read_text())
    assert (told["exit_code"], told["interrupted"], told["culprits"]) == (code, by.name, [1])


def test_ctrl_c_says_how_ranks_have_failed(tmp_path: Path) -> None:
    text = 'if rank == 1: raise ValueError("bad sample")\ntime.sleep(0.5)\nprint("up", flush=True)\ntime.sleep(600)\n'
    code, said = interrupted(text, ["[rank 0] up\n"], tmp_path)
    assert code == 130
    assert "rank 1 raised ValueError: bad sample\n\nTraceback (most recent call last):\n" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.py"], "nowhere.py: there is no such file"),
        (["package"], "package: there is no such file; for a module: -m package"),
        (["-m", "no_such_module_here"], "-m no_such_module_here: there is no module 'no_such_module_here'"),
        (["-n", "2000", __file__], "World(2000): a world has 1 to 1024 ranks"),
        (
            ["-n", "2", "--fault", "rank 5: kill before collective.barrier", __file__],
            "names rank 5, but the world has 2",
        ),
        (["--fault", "rank 0: explode", __file__], "explode"),
        (["--plan", "nowhere", __file__], "--plan nowhere: No such file or directory; give a file of faults"),
        (["--deadline", "0", __file__], "--deadline 0.0: give seconds above 0"),
        (["--json", "/", __file__], "--json /: is a directory; give a file"),
        (["--html", "/", __file__], "--html /: is a directory; give a file"),
        (["--perfetto", "/nowhere/trace", __file__], "there is no directory /nowhere; make it first"),
        ([], "Missing argument 'SCRIPT'"),
    ],
)
def test_a_mistake_in_the_command_is_one_line_and_exit_code_2(arguments: list[str], said: str) -> None:
    from click.testing import CliRunner

    from rankdrill.cli import main

    result = CliRunner().invoke(main, ["run", *arguments])
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("error", "told"),
    [("CUDA error: invalid device ordinal", True), ("Duplicate GPU detected : rank 1 and rank 0", True), ("no", False)],
)
def test_of_ranks_without_a_gpu_of_their_own_it_is_said_how_to_share_one(run: Run, error: str, told: bool) -> None:
    done = run(f"raise RuntimeError({error!r})", options=("-n", "2"))
    assert done.returncode == 1
    assert ("if ranks are to share the GPUs that there are:\n  rankdrill run --device cuda …" in done.stderr) == told


def test_a_script_with_a_long_path_is_found_from_anywhere(run: Run, tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*(f"a_directory_that_has_a_long_name_{each}" for each in range(8)))
    deep.mkdir(parents=True)
    script = deep / "train.py"
    script.write_text(HEAD + INIT + "if rank == 1:\n    sys.exit()\ndist.barrier()\n")
    done = run("", options=("-n", "3"), script=str(script))
    assert done.returncode == 1
    assert f"{deep.relative_to(tmp_path)}/train.py" in done.stderr
    assert "…" not in done.stderr


KEEPS_A_GROUP = "dist.barrier(dist.new_group())\ndist.barrier()"


def test_strictly_a_group_that_is_kept_is_told(run: Run) -> None:
    assert run(KEEPS_A_GROUP).returncode == 0
    done = run(KEEPS_A_GROUP, options=("-n", "3", "--strict-contracts"))
    assert done.returncode == 1
    assert (
        "leaked group: ranks 0, 1, 2 made a group of ranks 0, 1, 2, and never destroyed it, at script.py" in done.stderr
    )


def test_strictly_and_not_at_all_is_refused(run: Run) -> None:
    done = run(KEEPS_A_GROUP, options=("-n", "3", "--strict-contracts", "--no-contracts"))
    assert done.returncode == 2
    assert "--no-contracts and --strict-contracts contradict each other; give one of them" in done.stderr


def test_a_child_that_a_script_forks_ends_for_itself(run: Run) -> None:
    """Its `sys.exit` is not the rank's, which has a mistake of its own to tell."""
    forks = "if not os.fork():\n    sys.exit({})\nos.wait()\n"
    assert run(forks.format(5)).returncode == 0
    done = run(forks.format(0) + "raise ValueError('no such sample')")
    assert done.returncode == 1
    assert "ValueError: no such sample" in done.stderr
