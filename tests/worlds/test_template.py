"""The template stays what a fork must come from: one thread, no CUDA; and what starting ranks needs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.errors import WorldError
from rankdrill.worlds.processes.client import TemplateClient
from rankdrill.worlds.processes.messages import RankSpec
from rankdrill.worlds.processes.nursery import KEEP_VARIABLE
from rankdrill.worlds.processes.template import signal_all
from tests.worlds.conftest import PATIENCE_S


def test_the_template_has_one_thread_and_no_cuda(two: World) -> None:
    def body() -> tuple[int, bool]:
        return os.getppid(), bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]

    (template, initialised), (other, _) = two.run(body).unwrap()
    assert template == other
    assert not initialised, "ranks would inherit a context that does not survive a fork"
    assert len(os.listdir(f"/proc/{template}/task")) == 1
    maps = Path(f"/proc/{template}/maps").read_text()
    assert "/dev/nvidia" not in maps


@pytest.fixture
def no_nursery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates are started."""
    monkeypatch.delenv(KEEP_VARIABLE, raising=False)


@pytest.mark.usefixtures("no_nursery")
def test_preloaded_modules_are_there_before_the_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_in_the_template.py").write_text("import os\nPID = os.getpid()\n")
    source = f"""
import os, sys
sys.path.append({str(tmp_path)!r})
from rankdrill import World
def body():
    import made_in_the_template
    return made_in_the_template.PID == os.getppid()
print(World(2, preload=["made_in_the_template", "there_is_no_such_module"]).run(body).unwrap())
"""
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.stderr) == ("[True, True]\n", "")


@pytest.mark.nightly
@pytest.mark.usefixtures("no_nursery")
def test_what_is_preloaded_is_settled_once_and_not_for_every_world(tmp_path: Path) -> None:
    (tmp_path / "counts_collections.py").write_text("""
import gc
SEEN = []
gc.callbacks.append(lambda phase, info: SEEN.append(phase) if info["generation"] == 2 else None)
""")
    source = f"""
import sys
sys.path.append({str(tmp_path)!r})
from rankdrill import World
def body():
    import counts_collections
    return len(counts_collections.SEEN)
for _ in range(3):
    with World(1, preload=["counts_collections", "there_is_no_such_module"]) as world:
        print(world.run(body).unwrap())
"""
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120)
    first, *others = ran.stdout.split()
    assert others == [first, first], ran.stdout + ran.stderr


@pytest.mark.parametrize("keep", ["", "60"])
def test_a_template_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keep: str) -> None:
    monkeypatch.setenv(KEEP_VARIABLE, keep)
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('libtorch is not there')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    client = TemplateClient()
    try:
        with pytest.raises(WorldError, match="libtorch is not there"):
            client.wait_ready()
    finally:
        client.close()


def test_importing_rankdrill_does_not_import_torch() -> None:
    source = """
import sys, rankdrill
from rankdrill import World
World(2)
heavy = {"torch", "numpy", "hypothesis", "pytest"} & set(sys.modules)
sys.exit(f"imported: {heavy}" if heavy else 0)
"""
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr


def test_sixty_four_ranks(record_property: Callable[[str, object], None]) -> None:
    def body() -> float:
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        return float(tensor)

    with World(64) as world:
        outcome = world.run(body, deadline=10 * PATIENCE_S)
    record_property("seconds", outcome.elapsed)
    assert outcome.unwrap() == [64.0] * 64


def test_of_ranks_that_are_killed_together_none_sees_another_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, mine = os.pipe()
    lives = subprocess.Popen(["sleep", "60"], pass_fds=[mine])
    os.close(mine)
    # It ends its wait when the first one's end of the pipe is gone.
    sees = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.read({told}, 1); os.mkdir('saw')"], pass_fds=[told], cwd=tmp_path
    )
    os.close(told)
    kill = os.kill

    def slow(pid: int, signum: int) -> None:
        kill(pid, signum)
        time.sleep(0.5)

    time.sleep(1.0)
    monkeypatch.setattr(os, "kill", slow)
    signal_all([lives.pid, sees.pid], signal.SIGKILL)
    assert (lives.wait(), sees.wait()) == (-signal.SIGKILL, -signal.SIGKILL)
    assert not (tmp_path / "saw").exists()


def test_a_rank_asked_for_when_the_template_has_just_ended_says_how_it_did() -> None:
    client = TemplateClient()
    try:
        client.wait_ready()
        assert client._process.pid is not None
        os.kill(client._process.pid, signal.SIGKILL)
        assert str(client.ending()) == "killed by SIGKILL"
        with pytest.raises(WorldError, match="the process that ranks are forked from has ended: killed by SIGKILL"):
            client.fork(RankSpec(0, 1, "gloo", "cpu", str(client.directory), 60.0, 0, "run"))
        client.bury()
        assert str(client.ending()) == "killed by SIGKILL", "though it has been reaped"
    finally:
        client.close()
