"""Tests that were written for other launchers run as they are: they make groups, read torchrun's variables."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.plugin.conftest import Ran
from tests.torch_can import Can, can, needs

Run = Callable[..., Ran]


def test_a_second_init_process_group_gives_the_group_that_is_there(run: Run) -> None:
    ran = run("""
pids = []

@pytest.mark.ranks(2)
def test_asks(rank):
    pids.append(os.getpid())
    dist.init_process_group("gloo", rank=rank.index, world_size=2)
    assert dist.group.WORLD is rank.group
    dist.barrier()
    assert rank.index == 0, "to see the note"

@pytest.mark.ranks(2)
def test_again(rank):
    for _ in range(2):
        dist.init_process_group(backend="gloo")
        dist.barrier()
""")
    assert ran.outcome("test_again") == "passed"
    assert "init_process_group() gave the group that this rank already has" in ran.screen
    assert "init=False" in ran.screen


@pytest.mark.parametrize(
    "asked", ["'nccl'", "'gloo', world_size=3, rank=0", "'gloo', rank=(rank.index + 1) % 2, world_size=2"]
)
def test_another_group_than_the_one_that_is_there_is_refused_with_the_remedy(run: Run, asked: str) -> None:
    ran = run(f"""
@pytest.mark.ranks(2)
def test_it(rank):
    dist.init_process_group({asked})
""")
    text = ran.failure("test_it")
    assert "UsageError: init_process_group(" in text
    assert "@pytest.mark.ranks(2, init=False) leaves making it to the test" in text


def test_a_timeout_that_is_asked_for_holds_for_this_test_alone(run: Run) -> None:
    needs(Can.CHANGE_TIMEOUTS)
    ran = run("""
from datetime import timedelta

@pytest.mark.ranks(2)
def test_short(rank):
    dist.init_process_group("gloo", timeout=timedelta(seconds=0.5))
    if rank.index == 0:
        with pytest.raises(RuntimeError):
            dist.all_reduce(torch.ones(1))
    else:
        time.sleep(1.5)

@pytest.mark.ranks(2)
def test_next(rank):
    if rank.index == 0:
        time.sleep(1)
    dist.barrier()
""")
    ran.result.assert_outcomes(passed=2)


def test_where_the_group_keeps_its_timeout_it_is_said(run: Run) -> None:
    ran = run("""
from datetime import timedelta

@pytest.mark.ranks(2)
def test_it(rank):
    dist.init_process_group("gloo", timeout=timedelta(seconds=0.5))
    if rank.index == 0:
        time.sleep(1)
    dist.all_reduce(torch.ones(1))
    assert False
""")
    told = "that group keeps its timeout, 1800 s: gloo of this torch takes none later"
    assert (told in ran.screen) is not can(Can.CHANGE_TIMEOUTS)


INIT_FALSE = """
@pytest.mark.ranks(3, init=False)
def test_it(rank):
    assert not dist.is_initialized()
    assert rank.group is None
    for turn in range({turns}):
        dist.init_process_group("gloo"{arguments})
        total = torch.ones(1)
        dist.all_reduce(total)
        assert total == 3
        assert rank.group is dist.group.WORLD
        dist.destroy_process_group()
    assert not dist.is_initialized()
"""


def test_a_world_without_a_group_leaves_making_it_to_the_test(run: Run) -> None:
    ways = [
        "",
        ", init_method='env://'",
        ", rank=rank.index, world_size=3",
        ", init_method=f'tcp://127.0.0.1:{int(os.environ[\"MASTER_PORT\"])}', rank=rank.index, world_size=3",
    ]
    tests = []
    for number, way in enumerate(ways):
        # Over a port of its own choosing torch may come to the store of the turn before, which is not gone yet.
        turns = "1" if "tcp" in way else "2"
        tests.append(
            INIT_FALSE.replace("{arguments}", way).replace("{turns}", turns).replace("test_it", f"test_{number}")
        )
    run("".join(tests)).result.assert_outcomes(passed=len(ways))


def test_whoever_leaves_out_making_the_group_is_named_at_once(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(3, init=False)
def test_left_out(rank):
    if rank.index != 1:
        dist.init_process_group("gloo")

@pytest.mark.ranks(3, init=False)
def test_raised_before(rank):
    assert rank != 1
    dist.init_process_group("gloo")

@pytest.mark.ranks(3)
def test_left_out_the_second_time(rank):
    dist.barrier()
    dist.destroy_process_group()
    if rank.index != 1:
        dist.init_process_group("gloo")
""")
    ran.result.assert_outcomes(failed=3)
    for test in ("test_left_out", "test_left_out_the_second_time"):
        assert "missing call: rank 1 leaves out init_process_group #0 on 'default'" in ran.failure(test)
    raised = ran.failure("test_raised_before")
    assert "rank 1 failed" in raised
    assert "victims:\n  ranks 0, 2 wait in group.init_process_group #0 on 'default'" in raised
    assert "deadline" not in ran.screen


def test_ranks_that_would_each_meet_for_rpc_at_a_port_of_their_own_are_told_so(run: Run) -> None:
    ran = run("""
import torch.distributed.rpc as rpc

def meet(rank, place):
    options = rpc.TensorPipeRpcBackendOptions(init_method=place, rpc_timeout=20)
    rpc.init_rpc(f"worker{rank}", rank=rank.index, world_size=2, rpc_backend_options=options)

@pytest.mark.ranks(2, init=False)
def test_together(rank, tmp_path):
    meet(rank, f"file://{tmp_path}/place")
    assert rpc.rpc_sync(f"worker{1 - rank}", max, args=(1, 2)) == 2
    rpc.shutdown()

@pytest.mark.ranks(2, init=False)
def test_apart(rank):
    meet(rank, f"tcp://127.0.0.1:{5000 + rank.index}")
""")
    ran.result.assert_outcomes(passed=1, failed=1)
    told = ran.failure("test_apart")
    assert "rendezvous() is to meet at tcp://127.0.0.1:5000 on rank 0, at tcp://127.0.0.1:5001 on rank 1: each" in told
    assert "take a path in tmp_path, which they share, or the port in MASTER_PORT" in told


@pytest.mark.parametrize("place", ["'file://' + tempfile.mktemp()", "'tcp://127.0.0.1:' + str(5000 + rank.index)"])
def test_ranks_that_would_each_wait_at_a_place_of_their_own_are_told_so(run: Run, place: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        free = listening.getsockname()[1]
    ran = run(f"""
import tempfile

@pytest.mark.ranks(3, init=False)
def test_apart(rank):
    dist.init_process_group("gloo", init_method={place}, rank=rank.index, world_size=3)

@pytest.mark.ranks(3, init=False)
def test_alone(rank):
    dist.init_process_group("gloo", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)

@pytest.mark.ranks(2, init=False)
def test_by_two_names(rank):
    host = ("127.0.0.1", "localhost")[rank.index]
    dist.init_process_group("gloo", init_method=f"tcp://{{host}}:{free}", rank=rank.index, world_size=2)
    dist.barrier()

@pytest.mark.ranks(3, init=False)
def test_together(rank, tmp_path):
    for turn in range(2):
        dist.init_process_group("gloo", init_method=f"file://{{tmp_path}}/{{turn}}?rank={{rank}}&world_size=3")
        dist.barrier()
        dist.destroy_process_group()
""")
    ran.result.assert_outcomes(passed=3, failed=1)
    told = ran.failure("test_apart")
    assert "ranks 0, 1, 2 failed: rankdrill.errors.UsageError: init_process_group() is to meet at " in told
    assert "take a path in tmp_path, which they share, or @pytest.mark.ranks(3) without init=False" in told


def test_ranks_without_a_group_are_kept_if_the_test_destroys_its_own(run: Run) -> None:
    ran = run("""
pids = []

@pytest.mark.ranks(2, init=False)
def test_destroys():
    pids.append(os.getpid())
    dist.init_process_group("gloo")
    dist.barrier()  # whoever destroys it at once cuts off the other, which may still be connecting
    dist.destroy_process_group()

@pytest.mark.ranks(2, init=False)
def test_leaves_it():
    assert pids == [os.getpid()]
    dist.init_process_group("gloo")

@pytest.mark.ranks(2, init=False)
def test_is_not_given_it():
    assert pids == []
    assert not dist.is_initialized()
""")
    ran.result.assert_outcomes(passed=3)


def test_destroying_the_group_and_making_another(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(2)
def test_it(rank):
    dist.destroy_process_group()
    assert not dist.is_initialized()
    dist.init_process_group("gloo", init_method="env://")
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total == 2

@pytest.mark.ranks(2)
def test_next(rank):
    rank.barrier()
""")
    ran.result.assert_outcomes(passed=2)


def test_a_rank_is_told_what_torchrun_would_tell_it(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(2)
def test_it(rank):
    env = os.environ
    assert int(env["RANK"]) == int(env["LOCAL_RANK"]) == rank.index
    assert int(env["WORLD_SIZE"]) == int(env["LOCAL_WORLD_SIZE"]) == 2
    assert env["GROUP_RANK"] == "0"
    assert env["MASTER_ADDR"] == "127.0.0.1"
    assert env["TORCHELASTIC_USE_AGENT_STORE"] == "False"
    assert env["TORCHELASTIC_RUN_ID"]
    assert dist.is_torchelastic_launched()

@pytest.mark.ranks(2)
def test_the_port_is_free_for_a_store(rank):
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 2, is_master=rank.index == 0)
    store.set(str(rank.index), "here")
    assert store.get(str(1 - rank.index)) == b"here"
    rank.barrier()  # the master's store lives until all have read
""")
    ran.result.assert_outcomes(passed=2)


# ------------------------------------------------------------------------------ what sessions are configured with


def test_warnings_as_errors_by_an_option(run: Run) -> None:
    source = """
import warnings

@pytest.mark.ranks(2)
def test_passes(rank):
    rank.barrier()

@pytest.mark.ranks(2)
def test_warns():
    warnings.warn("careful")
"""
    ran = run(source, "-W", "error", "-p", "no:asyncio", subprocess=True)
    ran.result.assert_outcomes(passed=1, failed=1)
    assert "UserWarning: careful" in ran.failure("test_warns")


def test_the_ranks_own_error_at_collection_is_shown(run: Run) -> None:
    ran = run("""
if "RANK" in os.environ:
    import no_such_module_on_ranks

@pytest.mark.ranks(2)
def test_it(rank): ...
""")
    assert ran.outcome("test_it") == "error"
    assert "No module named 'no_such_module_on_ranks'" in ran.failure("test_it")


IMPORTED = """
COMPILER = "torch._dynamo"

@pytest.mark.ranks(2)
def test_it(rank):
    assert (COMPILER in sys.modules) is {expected}
"""


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        pytest.param("optimizer = torch.optim.SGD", True, marks=pytest.mark.nightly),
        ("from torch.nn.parallel import DistributedDataParallel", True),
        ("", False),
    ],
)
def test_what_a_file_leads_to_is_imported_before_ranks_are_forked(run: Run, uses: str, expected: bool) -> None:
    ran = run(f"{uses}\n{IMPORTED.format(expected=expected)}", subprocess=True)
    assert ran.outcome("test_it") == "passed", ran.screen


def test_a_slow_import_is_not_counted_against_the_tests_deadline(run: Run) -> None:
    ran = run("""
if "RANK" in os.environ:
    time.sleep(2.5)

@pytest.mark.ranks(2, deadline=2)
def test_it(rank):
    rank.barrier()

@pytest.mark.timeout(2)
@pytest.mark.ranks(3)
def test_beside_pytest_timeout(rank):
    rank.barrier()
""")
    ran.result.assert_outcomes(passed=2)


COMMON = "common_distributed"
DTENSOR = "distributed._tensor.common_dtensor"


_SOURCE = Path(torch.__file__).parent / "testing" / "_internal" / f"{COMMON}.py"
_OLD_SPELLING = "MultiProcContinousTest"  # until torch 2.7
_CONTINUOUS = _OLD_SPELLING if _OLD_SPELLING in _SOURCE.read_text() else "MultiProcContinuousTest"
HARNESSES = [
    (COMMON, "MultiProcessTestCase", "starts processes of its own; derive the class from unittest.TestCase"),
    (COMMON, _CONTINUOUS, "derive the class from unittest.TestCase instead: self.rank is"),
    (DTENSOR, "DTensorTestBase", "derive the class from unittest.TestCase instead, drop with_comms"),
]


def test_torchs_own_harnesses_are_refused_with_a_line_on_how_to_port(run: Run, pytester: pytest.Pytester) -> None:
    for module, base, _ in HARNESSES:
        pytester.makepyfile(
            **{
                f"test_{base}": f"""
import pytest
from torch.testing._internal.{module} import {base}

@pytest.mark.ranks(2)
class Test{base}({base}):
    world_size = 2
    def test_one(self): ...
"""
            }
        )
    ran = run("", subprocess=True)
    assert ran.result.ret == 2
    for _, base, told in HARNESSES:
        (said,) = [line for line in ran.result.outlines if line.startswith(f"test_{base}.py::")]
        assert told in said
    assert ran.screen.count("see docs/porting.md") >= len(HARNESSES)


def test_what_a_harness_alone_called_is_named(run: Run) -> None:
    ran = run(f"""
from torch.testing._internal.{COMMON} import MultiProcessTestCase

class Base(MultiProcessTestCase):
    world_size = 2

    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def run_test(self, test_name, *args):
        self.model = object()
        super().run_test(test_name, *args)

    @property
    def file(self):
        return "a"

class TestIt(Base):
    @classmethod
    def _run(cls, *args): ...

    @pytest.mark.ranks(2)
    def test_one(self): ...
""")
    assert ran.result.ret == 2
    assert "Nobody calls TestIt._run and Base.run_test then: move what is set up there to setUp" in ran.screen
    assert "Nobody calls Base.setUp" not in ran.screen


def test_a_class_of_ones_own_may_have_a_harness_name(run: Run) -> None:
    ran = run("""
import unittest

class DTensorTestBase(unittest.TestCase):
    device_type = "cpu"

@pytest.mark.ranks(2)
class TestIt(DTensorTestBase):
    def test_one(self):
        assert dist.get_world_size() == 2
""")
    ran.result.assert_outcomes(passed=1)


def test_a_state_machine_is_refused(run: Run) -> None:
    ran = run("""
from hypothesis.stateful import RuleBasedStateMachine, rule

class Machine(RuleBasedStateMachine):
    @rule()
    def fails(self):
        assert False

TestMachine = pytest.mark.ranks(2)(Machine.TestCase)
""")
    assert ran.result.ret == 2
    assert "a rule-based state machine draws its rules while it runs" in ran.screen


DOCTEST = '''
def doubled(x):
    """
    >>> doubled(2)
    4
    """
    return 2 * x

def test_it():
    assert "RANK" in os.environ
'''


def test_marks_that_a_conftest_file_gives_hold_and_a_doctest_is_refused(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.ranks(2))
""")
    run(DOCTEST).result.assert_outcomes(passed=1)
    ran = run(DOCTEST, "--doctest-modules")
    assert ran.result.ret == pytest.ExitCode.USAGE_ERROR
    ran.result.stderr.fnmatch_lines(["*test_it.doubled: @pytest.mark.ranks is for test functions and methods"])


def test_what_a_conftest_file_deselects_by_the_size_of_the_world_is_run_when_the_controller_asks(
    run: Run, pytester: pytest.Pytester
) -> None:
    """Suites made for ``torchrun -m pytest`` keep the tests of the world that they find themselves in."""
    pytester.makeconftest("""
import os

def pytest_collection_modifyitems(config, items):
    here = int(os.environ.get("WORLD_SIZE", 1))
    kept = [item for item in items if here == 1]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
""")
    ran = run("""
@pytest.fixture(scope="module")
def shared():
    yield os.getpid()

@pytest.mark.ranks(2)
@pytest.mark.parametrize("n", range(2))
def test_it(rank, n, shared):
    rank.barrier()
    assert shared == os.getpid()
    assert (n, rank.index) != (1, 1)
""")
    ran.result.assert_outcomes(passed=1, failed=1)
    assert ran.failure("test_it[1]").splitlines()[0].startswith("rank 1 failed: assert (1, 1) != (1, 1)")


def test_what_importing_a_test_file_does_is_what_its_tests_begin_with(run: Run) -> None:
    ran = run("""
import threading
pids = []

if "RANK" in os.environ:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    dist.destroy_process_group()
    dist.init_process_group("gloo")

@pytest.mark.ranks(2)
def test_one():
    dist.barrier()
    pids.append(os.getpid())

@pytest.mark.ranks(2)
def test_two():
    dist.barrier()
    assert pids == [os.getpid()]
""")
    ran.result.assert_outcomes(passed=2)


def test_a_failure_on_ranks_that_ran_other_tests_says_how_to_rule_them_out(run: Run) -> None:
    ran = run("""
import json
json.seen = getattr(json, "seen", 0)

@pytest.mark.ranks(2)
def test_first():
    assert json.seen == 0
    json.seen = 1

@pytest.mark.ranks(2)
def test_second():
    assert json.seen == 0
""")
    assert "its ranks had run 1 test before; with fresh=True on the marker" in ran.failure("test_second")


def test_ranks_hear_of_what_changed_in_the_controller_between_the_phases_of_a_test(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest("""
import os

def pytest_runtest_call(item):
    if "RANK" not in os.environ:
        os.environ["SET_IN_THE_CONTROLLER"] = item.name
""")
    ran = run("""
@pytest.fixture
def something(): ...

@pytest.mark.ranks(2)
def test_one(something): ...

@pytest.mark.ranks(2)
def test_two(something):
    assert os.environ["SET_IN_THE_CONTROLLER"] == "test_one"
""")
    ran.result.assert_outcomes(passed=2)


def test_fixtures_of_a_conftest_file_serve_every_file_of_its_directory(run: Run, pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("inner")
    (folder / "conftest.py").write_text("import pytest\n\n@pytest.fixture\ndef three():\n    return 3\n")
    for name in ("one", "two"):
        body = "import pytest\n\n@pytest.mark.ranks(2)\ndef test_NAME(three):\n    assert three == 3\n"
        (folder / f"test_{name}.py").write_text(body.replace("NAME", name))
    run("").result.assert_outcomes(passed=2)


def test_fixtures_of_a_session_and_a_package_stay_up_from_file_to_file(run: Run, pytester: pytest.Pytester) -> None:
    folder = pytester.mkpydir("inner")
    (folder / "conftest.py").write_text("""
import pytest

log = []

@pytest.fixture(scope="session")
def of_session():
    log.append("session")
    yield log
    log.append("-session")

@pytest.fixture(scope="package")
def of_package(of_session):
    log.append("package")
    yield
    log.append("-package")

@pytest.fixture(scope="module")
def of_module(of_package):
    log.append("module")
    yield
    log.append("-module")
""")
    for name, seen in ("one", ["module"]), ("two", ["module", "-module", "module"]):
        (folder / f"test_{name}.py").write_text(f"""
import pytest

@pytest.mark.ranks(2)
def test_{name}(of_module, of_session):
    assert of_session == ["session", "package", *{seen}]
""")
    run("""
@pytest.mark.ranks(2)
def test_outside():
    from inner.conftest import log
    assert log == ["session", "package", "module", "-module", "module", "-module", "-package"]
""").result.assert_outcomes(passed=3)
