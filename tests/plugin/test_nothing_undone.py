"""What a fixture sets holds until its own teardown; what a test leaves behind, the next one does not find."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

FIXTURES = """
from pathlib import Path

def change(value):
    os.environ["CHANGED"] = value
    Path(value).mkdir(exist_ok=True)
    os.chdir(value)
    sys.path.insert(0, value)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    os.umask(0o027)
    sys.setrecursionlimit(4321)

def undo(value, before):
    del os.environ["CHANGED"]
    os.chdir(before)
    sys.path.remove(value)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    os.umask(0o022)
    sys.setrecursionlimit(1000)

def changed(value):
    assert os.environ.get("CHANGED") == value
    assert Path.cwd().name == value
    assert value in sys.path
    assert torch.get_default_dtype() == torch.float64
    assert torch.ones(1).device.type == "meta"
    assert sys.getrecursionlimit() == 4321
    return True

def untouched():
    assert "CHANGED" not in os.environ
    assert torch.get_default_dtype() == torch.float32
    assert torch.ones(1).device.type == "cpu"
    assert sys.getrecursionlimit() != 4321
    return True

@pytest.fixture(scope="SCOPE")
def changing(rank):
    before, value = os.getcwd(), f"place-{rank.index}"
    change(value)
    yield value
    undo(value, before)
"""


@pytest.mark.parametrize("scope", ["function", "class", "module", "package", "session"])
def test_what_a_fixture_sets_holds_in_the_body_and_in_every_test_of_its_scope(run: Run, scope: str) -> None:
    ran = run(
        FIXTURES.replace("SCOPE", scope)
        + """
class TestWithin:
    @pytest.mark.ranks(2)
    def test_one(self, changing):
        assert changed(changing)

    @pytest.mark.ranks(2)
    def test_two(self, changing):
        assert changed(changing)
"""
        + (
            ""
            if scope in ("module", "package", "session")
            else "\n@pytest.mark.ranks(2)\ndef test_after(): assert untouched()"
        )
    )
    ran.result.assert_outcomes(passed=2 if scope in ("module", "package", "session") else 3)


def test_what_a_fixture_of_a_module_sets_is_gone_in_the_next_module(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_z="import os\nimport pytest\n\n@pytest.mark.ranks(2)\ndef test_z(): assert 'CHANGED' not in os.environ"
    )
    run(
        FIXTURES.replace("SCOPE", "module")
        + """
@pytest.mark.ranks(2)
def test_it(changing):
    assert changed(changing)
""",
        "test_it.py",
        "test_z.py",
    ).result.assert_outcomes(passed=2)


def test_monkeypatch_of_a_fixture_holds_in_the_body(run: Run) -> None:
    ran = run("""
@pytest.fixture
def patched(monkeypatch, tmp_path):
    monkeypatch.setenv("WORD", "said")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("somewhere")
    return tmp_path

@pytest.mark.ranks(2)
def test_it(patched):
    assert os.environ["WORD"] == "said"
    assert os.getcwd() == str(patched)
    assert "somewhere" in sys.path

@pytest.mark.ranks(2)
def test_after():
    assert "WORD" not in os.environ
    assert "somewhere" not in sys.path
""")
    ran.result.assert_outcomes(passed=2)


def test_a_fixture_of_a_session_that_is_set_up_in_a_body_outlives_it(run: Run) -> None:
    ran = run("""
@pytest.fixture(scope="session")
def lasting():
    os.environ["LASTING"] = "yes"
    yield
    del os.environ["LASTING"]

@pytest.mark.ranks(2)
def test_asks(request):
    os.environ["PASSING"] = "yes"
    request.getfixturevalue("lasting")

@pytest.mark.ranks(2)
def test_finds(lasting):
    assert os.environ["LASTING"] == "yes"
    assert "PASSING" not in os.environ
""")
    ran.result.assert_outcomes(passed=2)


LEFT_BEHIND = {
    "environment": ("os.environ['LEFT'] = '1'", "'LEFT' not in os.environ"),
    "directory": ("os.chdir('/')", "os.getcwd() != '/'"),
    "path": ("sys.path.append('left')", "'left' not in sys.path"),
    "dtype": ("torch.set_default_dtype(torch.float64)", "torch.ones(1).dtype == torch.float32"),
    "device": ("torch.set_default_device('meta')", "torch.ones(1).device.type == 'cpu'"),
    "grad": ("torch.set_grad_enabled(False)", "torch.is_grad_enabled()"),
    "anomaly": ("torch.autograd.set_detect_anomaly(True)", "not torch.is_anomaly_enabled()"),
    "deterministic": (
        "torch.use_deterministic_algorithms(True)",
        "not torch.are_deterministic_algorithms_enabled()",
    ),
    "threads": ("torch.set_num_threads(2)", "torch.get_num_threads() == 1"),
    "precision": (
        "torch.set_float32_matmul_precision('medium')",
        "torch.get_float32_matmul_precision() == 'highest'",
    ),
    "printing": ("torch.set_printoptions(precision=1)", "'0.3333' in str(torch.tensor(1 / 3))"),
    "sharing": (
        "torch.multiprocessing.set_sharing_strategy('file_system')",
        "torch.multiprocessing.get_sharing_strategy() == 'file_descriptor'",
    ),
    "signal": (
        "signal.signal(signal.SIGTERM, lambda *_: None)",
        "signal.getsignal(signal.SIGTERM) == signal.SIG_DFL",
    ),
    "timer": ("signal.setitimer(signal.ITIMER_REAL, 500)", "signal.getitimer(signal.ITIMER_REAL)[0] == 0"),
    "umask": ("os.umask(0o777)", "os.umask(0o022) != 0o777"),
    "recursion": ("sys.setrecursionlimit(5000)", "sys.getrecursionlimit() != 5000"),
    "logging": (
        "import logging; logging.getLogger().setLevel(1); logging.disable(50)",
        "__import__('logging').getLogger().level != 1 and __import__('logging').root.manager.disable == 0",
    ),
    "log records": (
        "import logging; logging.setLogRecordFactory(lambda *_, **__: dist.no_such)",
        "__import__('logging').getLogRecordFactory() is __import__('logging').LogRecord",
    ),
    "garbage": ("import gc; gc.disable()", "__import__('gc').isenabled()"),
    "stdout": ("sys.stdout = open('out.txt', 'w')", "sys.stdout.fileno() == 1"),
    "numpy": (
        "import numpy; numpy.seterr(divide='raise')",
        "__import__('numpy').geterr()['divide'] == 'warn'",
    ),
    "start method": (
        "import multiprocessing; multiprocessing.set_start_method('spawn', force=True)",
        "__import__('multiprocessing').get_start_method(allow_none=True) is None",
    ),
}


def test_what_a_body_leaves_is_put_back_for_the_next(run: Run) -> None:
    tests = [
        f"""
@pytest.mark.ranks(2)
def test_{number}_leaves():
    pids.append(os.getpid())
    {leave}

@pytest.mark.ranks(2)
def test_{number}_next():
    assert set(pids) == {{os.getpid()}}, "the same ranks"
    assert {gone}
"""
        for number, (leave, gone) in enumerate(LEFT_BEHIND.values())
    ]
    ran = run("pids = []\n" + "".join(tests))
    ran.result.assert_outcomes(passed=2 * len(LEFT_BEHIND))


NOTICED = {
    "a thread": ("import threading; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "thread"),
    "a process": ("import subprocess; subprocess.Popen(['sleep', '60'])", "left a child process"),
    "a file": ("global kept; kept = open('left.txt', 'w')", "left.txt open"),
    "a port": ("global kept; kept = dist.TCPStore('127.0.0.1', 0, is_master=True)", "left port "),
    "a module": ("import json; sys.modules['json'] = sys.modules['os']", "changed sys.modules"),
    "torch": ("torch.Tensor.add_ = lambda *_: None", "changed Tensor.add_"),
    "torch.distributed": ("dist.barrier = lambda *_: None", "changed torch.distributed.barrier"),
    "the group": ("dist.destroy_process_group()", ""),
    "some ranks' group": ("dist.new_group([1])", "rank 1 left a process group of 1 of 2 ranks"),
    "a group, and no default one": (
        "dist.new_group(); dist.distributed_c10d._update_default_pg(None)",
        "left a process group of 2 ranks, and no default one",
    ),
    "a group that the file keeps": (
        "global kept; kept = dist.new_group(); dist.barrier(kept)",
        "left a process group of all ranks, held by test_it.kept",
    ),
    "a group in a cache": (
        "import functools; global cached; cached = functools.cache(dist.new_group); dist.barrier(cached())",
        "left a process group of all ranks that something still holds",
    ),
    "a group by its members": (
        # Who leaves before the other has connected ends the other's call.
        "group = dist.new_group([0, 1], use_local_synchronization=True)"
        "; dist.barrier(group); dist.destroy_process_group(group)",
        "made a process group with use_local_synchronization",
    ),
}


@pytest.mark.parametrize(("leave", "told"), NOTICED.values(), ids=NOTICED)
def test_what_cannot_be_put_back_leads_to_fresh_ranks_and_is_told(run: Run, leave: str, told: str) -> None:
    ran = run(
        f"""
@pytest.mark.ranks(2)
def test_leaves():
    {leave}

@pytest.mark.ranks(2)
def test_next(rank):
    rank.barrier()
    total = torch.ones(1).add_(1)
    assert total == 2
    assert sys.modules["json"].__name__ == "json" if "json" in sys.modules else True

@pytest.mark.ranks(2)
def test_after(rank):
    rank.barrier()
""",
        "-v",
    )
    ran.result.assert_outcomes(passed=3)
    assert ran.screen.count("the next test gets fresh ranks") == (1 if told else 0)
    assert told in ran.screen


def test_a_failed_test_does_not_keep_its_port_from_the_next(run: Run) -> None:
    # What the body made lives on in the traceback, whose frames hold each other.
    ran = run("""
import socket

def serve():
    with socket.socket() as anywhere:
        anywhere.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        anywhere.bind(("127.0.0.1", 0))
        port = int(os.environ.setdefault("CHOSEN", str(anywhere.getsockname()[1])))
    return dist.TCPStore("127.0.0.1", port, is_master=True)

def fail():
    try:
        store, port = serve(), os.environ["CHOSEN"]
        with open("port.txt", "w") as file:
            file.write(port)
        raise ValueError("fails")
    except ValueError as error:
        held = error
        raise

@pytest.mark.ranks(1)
def test_fails():
    fail()

@pytest.mark.ranks(1)
def test_next():
    with open("port.txt") as file:
        os.environ["CHOSEN"] = file.read()
    serve()
""")
    ran.result.assert_outcomes(failed=1, passed=1)


def test_the_line_about_fresh_ranks_is_not_captured(run: Run) -> None:
    ran = run(
        """
import threading

@pytest.mark.ranks(2)
def test_it():
    threading.Thread(target=time.sleep, args=(60,), name="lasting", daemon=True).start()
""",
        "-v",
        subprocess=True,  # in this process pytest's own capture is not the one that counts
    )
    ran.result.stdout.fnmatch_lines(["*::test_it PASSED*", "  rank 0 left thread 'lasting': the next test gets fresh*"])


def test_fresh_gives_a_test_ranks_of_its_own(run: Run) -> None:
    source = """
seen = []

@pytest.mark.ranks(2)
def test_one():
    seen.append(1)

@pytest.mark.ranks(2, fresh=True)
def test_two():
    assert seen == []
    seen.append(2)

@pytest.mark.ranks(2)
def test_three():
    assert seen == EXPECTED
"""
    run(source.replace("EXPECTED", "[2]")).result.assert_outcomes(passed=3)
    run(source.replace("EXPECTED", "[]"), "--rankdrill-fresh").result.assert_outcomes(passed=3)


def test_a_failing_test_is_torn_down_on_all_ranks(run: Run, pytester: pytest.Pytester) -> None:
    ran = run("""
from pathlib import Path

@pytest.fixture
def resource(rank):
    yield
    Path(f"torn-down-{rank.index}").touch()

@pytest.mark.ranks(2)
def test_it(resource, rank):
    assert rank.index == 0
""")
    ran.result.assert_outcomes(failed=1)
    assert {path.name for path in pytester.path.glob("torn-down-*")} == {"torn-down-0", "torn-down-1"}


def test_what_a_skipped_test_was_the_last_to_share_is_torn_down_with_it(run: Run) -> None:
    ran = run("""
class TestShares:
    @pytest.fixture(scope="class", autouse=True)
    def untidy(self, rank):
        yield
        assert rank.index == 0, "left something"

    @pytest.mark.ranks(2)
    def test_one(self): ...

    @pytest.mark.skip(reason="not here")
    @pytest.mark.ranks(2)
    def test_two(self): ...

@pytest.mark.ranks(2)
def test_after(rank): ...
""")
    ran.result.assert_outcomes(passed=2, skipped=1, errors=1)
    assert "rank 1 failed: AssertionError: left something" in ran.screen


@pytest.mark.parametrize("ends", ["dist.new_group([0, 1]); assert rank.index == 0", "dist.destroy_process_group()"])
def test_ranks_that_are_thrown_away_are_torn_down_whole(run: Run, pytester: pytest.Pytester, ends: str) -> None:
    run(f"""
from pathlib import Path

@pytest.fixture(scope="module")
def resource(rank):
    Path(f"up-{{rank.index}}-{{os.getpid()}}").touch()
    yield
    Path(f"down-{{rank.index}}-{{os.getpid()}}").touch()

@pytest.mark.ranks(2)
def test_one(resource, rank):
    {ends}

@pytest.mark.ranks(2)
def test_two(resource, rank):
    rank.barrier()
""")
    up = {path.name.removeprefix("up-") for path in pytester.path.glob("up-*")}
    down = {path.name.removeprefix("down-") for path in pytester.path.glob("down-*")}
    assert len(up) == 4, "two sets of ranks"
    assert down == up


def test_the_group_of_a_fixture_that_lasts_keeps_the_ranks(run: Run) -> None:
    ran = run(
        """
pids = []

@pytest.fixture(scope="module")
def pair():
    group = dist.new_group([1])
    yield group
    if dist.get_rank() == 1:
        dist.destroy_process_group(group)

@pytest.mark.ranks(2)
@pytest.mark.parametrize("turn", range(3))
def test_it(pair, turn):
    pids.append(os.getpid())
    assert len(set(pids)) == 1 and len(pids) == turn + 1

@pytest.mark.ranks(2)
def test_one_more_in_the_body(pair):
    dist.new_group([0])
""",
        "-v",
    )
    ran.result.assert_outcomes(passed=4)
    assert ran.screen.count("gets fresh ranks") == 1, "after the last"
