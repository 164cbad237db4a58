"""Ranks end with their controller, whatever happens to it, and leave nothing behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rankdrill.worlds.private import sweep
from tests.worlds.conftest import Controller, alive, wait_until

# One rank asleep, one computing, one stopped, one holding the GIL, one with a child, one with a segment.
BUSY = """
def body():
    rank = get_rank()
    if rank == 4:
        note("child", subprocess.Popen(["sleep", "1000"]).pid)
    if rank == 5:
        from multiprocessing.shared_memory import SharedMemory
        segment = SharedMemory("rankdrill-test-%d" % os.getpid(), create=True, size=1 << 16)
    if rank == 0:
        note("template", os.getppid())
    note(f"rank-{rank}", os.getpid())
    if rank == 1:
        while True:
            sum(range(1000))
    if rank == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    if rank == 3:
        ctypes.PyDLL(None).sleep(1000)
    time.sleep(1000)
"""
RANKS = 6
NOTES = RANKS + 2  # and the template and the child


@pytest.fixture
def segments() -> Iterator[Callable[[], set[str]]]:
    """The segments of this test that are left."""
    before = set(os.listdir("/dev/shm"))

    def left() -> set[str]:
        return {name for name in set(os.listdir("/dev/shm")) - before if name.startswith("rankdrill-test-")}

    yield left
    for name in left():
        os.unlink(f"/dev/shm/{name}")


def left_alive(pids: dict[str, int]) -> list[str]:
    return [name for name, pid in pids.items() if alive(pid)]


def runs(controller: Controller) -> list[Path]:
    return list(controller.home.glob("rankdrill-*/run-*"))


def test_the_controller_is_killed(
    controller: Callable[[str], Controller],
    segments: Callable[[], set[str]],
    record_property: Callable[[str, object], None],
) -> None:
    victim = controller(f"{BUSY}\nWorld({RANKS}).run(body, deadline=1000)")
    pids = victim.wait_notes(NOTES)
    assert left_alive(pids) == list(pids), "this test shows nothing"
    assert segments()
    os.kill(victim.pid, signal.SIGKILL)
    took = wait_until(lambda: not left_alive(pids), f"alive: {left_alive(pids)} of {pids}")
    record_property("all gone after ms", took * 1000)
    wait_until(lambda: not runs(victim), "the private directory is left")
    wait_until(lambda: not segments(), "a segment is left")


@pytest.mark.nightly
def test_the_controller_is_killed_and_a_fork_of_it_lives_on(controller: Callable[[str], Controller]) -> None:
    victim = controller(f"""
{BUSY}
from rankdrill.worlds import start_template
start_template()
child = os.fork()
if child == 0:
    time.sleep(1000)
note("fork", child)
World(2).run(body, deadline=1000)
""")
    pids = victim.wait_notes(4)
    os.kill(victim.pid, signal.SIGKILL)
    fork = pids.pop("fork")
    wait_until(lambda: not left_alive(pids), f"alive: {left_alive(pids)} of {pids}")
    assert alive(fork)


def test_the_template_is_killed(controller: Callable[[str], Controller], segments: Callable[[], set[str]]) -> None:
    victim = controller(f"""
{BUSY}
world = World({RANKS})
outcome = world.run(body, deadline=1000)
print(outcome.verdict, flush=True)
print(world.run(get_rank).unwrap(), flush=True)
world.discard()
time.sleep(1000)
""")
    pids = victim.wait_notes(NOTES)
    os.kill(pids["template"], signal.SIGKILL)
    wait_until(lambda: not left_alive(pids), f"alive: {left_alive(pids)} of {pids}")
    wait_until(lambda: not segments(), "a segment is left")
    assert victim.process.stdout is not None
    assert victim.process.stdout.readline() == "died\n"
    assert victim.process.stdout.readline() == "[0, 1, 2, 3, 4, 5]\n", "the next run gets a new template"


@pytest.mark.nightly
def test_both_are_killed_at_once(controller: Callable[[str], Controller], segments: Callable[[], set[str]]) -> None:
    victim = controller(f"{BUSY}\nWorld({RANKS}).run(body, deadline=1000)")
    pids = victim.wait_notes(NOTES)
    os.kill(pids["template"], signal.SIGSTOP)  # it could do nothing in between
    os.kill(victim.pid, signal.SIGKILL)
    os.kill(pids["template"], signal.SIGKILL)
    del pids["child"]  # nobody is left who knows of it
    wait_until(lambda: not left_alive(pids), f"alive: {left_alive(pids)} of {pids}")
    wait_until(lambda: not segments(), "a segment is left")
    (run,) = runs(victim)
    assert sweep(run.parent) == [run], "the next controller's sweep finds it"
    assert not run.exists()


@pytest.mark.nightly
def test_ctrl_c(controller: Callable[[str], Controller]) -> None:
    victim = controller(f"{BUSY}\nWorld({RANKS}).run(body, deadline=1000)")
    pids = victim.wait_notes(NOTES)
    os.killpg(victim.pid, signal.SIGINT)
    wait_until(lambda: not left_alive(pids), f"alive: {left_alive(pids)} of {pids}")
    _, errors = victim.process.communicate(timeout=60)
    assert "\nKeyboardInterrupt\n" in errors, "and then where each rank was"
    assert victim.process.returncode in (130, -signal.SIGINT)
    assert runs(victim) == []


def test_ctrl_c_caught_and_the_next_run_works(controller: Callable[[str], Controller]) -> None:
    victim = controller(f"""
{BUSY}
world = World({RANKS})
try:
    world.run(body, deadline=1000)
except KeyboardInterrupt:
    print(world.run(get_rank).unwrap())
""")
    pids = victim.wait_notes(NOTES)
    os.kill(victim.pid, signal.SIGINT)
    out, errors = victim.process.communicate(timeout=60)
    assert out == "[0, 1, 2, 3, 4, 5]\n", errors
    assert left_alive(pids) == []


@pytest.mark.nightly
def test_a_controller_that_just_ends(controller: Callable[[str], Controller]) -> None:
    victim = controller("""
world = World(2)
def body():
    if get_rank() == 0:
        note("template", os.getppid())
    note(f"rank-{get_rank()}", os.getpid())
world.run(body).unwrap()
""")
    out, errors = victim.process.communicate(timeout=60)
    assert (out, errors) == ("", "")
    assert left_alive(victim.notes()) == []
    assert runs(victim) == []


def test_a_rank_that_cannot_start_is_the_culprit(controller: Callable[[str], Controller]) -> None:
    victim = controller("""
with open(os.path.join(os.environ["TMPDIR"], "breaks_rank_one.py"), "w") as file:
    file.write('''
import torch.distributed as dist
real = dist.init_process_group
def init_process_group(*args, rank, **kwargs):
    if rank == 1:
        raise OSError("no such device")
    real(*args, rank=rank, **kwargs)
dist.init_process_group = init_process_group
''')
sys.path.append(os.environ["TMPDIR"])
outcome = World(3, preload=["breaks_rank_one"]).run(get_rank)
print(outcome.culprits, outcome.victims, outcome.elapsed < 30, repr(outcome.ranks[1].error))
""")
    out, errors = victim.process.communicate(timeout=90)
    assert out == "(1,) (0, 2) True OSError('no such device')\n", errors
