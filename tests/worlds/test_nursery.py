"""Templates forked from a nursery: as started ones, but sooner; and a nursery that is in nobody's way."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from rankdrill.errors import UsageError
from rankdrill.worlds.processes import client, starting
from rankdrill.worlds.processes.client import TemplateClient
from rankdrill.worlds.processes.messages import RankSpec
from rankdrill.worlds.processes.nursery import KEEP_VARIABLE, Nurseries, keep_seconds, key, nursery_key
from rankdrill.worlds.processes.nursery.place import LOCK_NAME, NurseryPlace
from rankdrill.worlds.processes.nursery.same_modules import suppliers, unlike
from rankdrill.worlds.processes.starting import ForkedTemplate, StartedTemplate
from tests.worlds.conftest import PRELUDE, Controller, alive, wait_until

KEEP_S = 60.0
BOUND_S = 120.0

# What a rank says of itself; its template's parent is the nursery, if it has been forked from one.
SESSION = """
import json
def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])
def say(*values):
    print(json.dumps(values), flush=True)
"""


@dataclass
class Ground:
    """A temporary directory whose nurseries nobody else uses."""

    path: Path

    @property
    def home(self) -> Path:
        return self.path / f"rankdrill-{os.getuid()}"

    @property
    def nurseries(self) -> Nurseries:
        return Nurseries(self.home)

    def environ(self, **changes: str) -> dict[str, str]:
        return os.environ | {"TMPDIR": str(self.path), KEEP_VARIABLE: str(KEEP_S)} | changes

    def start(self, source: str, **changes: str) -> Controller:
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + SESSION + source],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environ(**changes),
            start_new_session=True,
        )
        return Controller(process, self.path)

    def run(self, source: str, **changes: str) -> list[Any]:
        """What `source` says, in a session of its own, which must end well and print nothing else."""
        out, errors = self.start(source, **changes).process.communicate(timeout=BOUND_S)
        assert errors == ""
        return [json.loads(line) for line in out.splitlines()]

    def only(self) -> dict[str, Any]:
        """The status of the one nursery."""
        (status,) = self.nurseries.status()
        return status

    def clear(self) -> None:
        """Kill what is left, and see to it that nothing is."""
        pids = [status["pid"] for status in self.nurseries.status()]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(map(alive, pids)), f"nurseries live on: {pids}")
        for place in self.home.glob("nursery-*"):
            place.unlink()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Where a nursery may be found that an earlier test has started."""
    ground = Ground(tmp_path_factory.mktemp("nurseries"))
    yield ground
    ground.clear()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Ground]:
    """Where there is no nursery yet."""
    ground = Ground(tmp_path)
    yield ground
    ground.clear()


@pytest.fixture
def here(shared: Ground, monkeypatch: pytest.MonkeyPatch) -> Ground:
    """The shared ground, for templates of this very process."""
    monkeypatch.setattr(tempfile, "tempdir", str(shared.path))
    monkeypatch.setenv(KEEP_VARIABLE, str(KEEP_S))
    return shared


WHOSE = """
def body():
    import torch
    return parent(os.getppid()), id(torch)
with World(2) as world:
    say(*world.run(body).unwrap()[0])
"""


def test_the_second_session_forks_what_the_first_has_imported(shared: Ground) -> None:
    [[nursery, torch]] = shared.run(WHOSE)
    assert shared.run(WHOSE) == [[nursery, torch]], "at the same address: it has not been imported again"
    status = shared.only()
    assert (status["pid"], status["templates"], status["keep_s"]) == (nursery, 0, KEEP_S)
    assert len(os.listdir(f"/proc/{nursery}/task")) == 1
    assert os.getsid(nursery) != os.getsid(0)


OF_A_RANK = """
import resource
os.umask(0o27)
os.chdir(os.environ["TMPDIR"])
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
for limit, soft in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, 500)):
    resource.setrlimit(limit, (soft, resource.getrlimit(limit)[1]))
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGUSR2, lambda *_: None)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGURG])
sys.path.append("/nowhere")
def of(pid):
    with open(f"/proc/{pid}/status") as file:
        status = {line.partition(":")[0]: line.partition(":")[2].strip() for line in file}
    with open(f"/proc/{pid}/limits") as file:
        limits = file.read()
    what = "Umask SigBlk SigIgn SigCgt Cpus_allowed NoNewPrivs Seccomp CapEff Groups Threads".split()
    nice, cwd = os.getpriority(os.PRIO_PROCESS, pid), os.readlink(f"/proc/{pid}/cwd")
    return [status.get(name) for name in what], limits, nice, cwd
def body():
    template = os.getppid()
    return {
        "rank": of(os.getpid()), "template": of(template), "path": sys.path, "argv": sys.argv, "cwd": os.getcwd(),
        "environ": {name: value for name, value in os.environ.items() if "RANK" not in name and "PORT" not in name
                    and not name.startswith("TORCHELASTIC")},
        "files": sorted(os.readlink(f"/proc/{template}/fd/{fd}").split(":")[0].rpartition("/")[2]
                        for fd in os.listdir(f"/proc/{template}/fd")),
        "parent": parent(template),
        "spawned from": __import__("multiprocessing").process.ORIGINAL_DIR,
        "leads": os.getsid(template) == template, "modules": "rankdrill.worlds.processes.template" in sys.modules,
        "time": time.strftime("%Z", time.gmtime(0)), "seed": __import__("torch").initial_seed() != 0,
    }
with World(1) as world:
    say(*world.run(body).unwrap())
"""


def test_a_forked_template_is_as_a_started_one(shared: Ground) -> None:
    [[nursery, _]] = shared.run(WHOSE)
    [[forked]] = shared.run(OF_A_RANK, SOMETHING="of this session")
    [[started]] = shared.run(OF_A_RANK, SOMETHING="of this session", **{KEEP_VARIABLE: ""})
    assert forked.pop("parent") == nursery != started.pop("parent")
    assert forked["environ"]["SOMETHING"] == "of this session"
    assert forked["cwd"] == str(shared.path)
    assert forked == started


def test_what_a_session_imports_is_not_there_in_the_next(shared: Ground, tmp_path: Path) -> None:
    (tmp_path / "of_one_session.py").write_text("import os\nPID = os.getpid()\n")
    source = f"""
sys.path.append({str(tmp_path)!r})
def body():
    return "of_one_session" in sys.modules
def of_the_template():
    return sys.modules["of_one_session"].PID == os.getppid()
with World(1, preload=sys.argv[1:] or [{{}}]) as world:
    say(*world.run(body).unwrap())
"""
    assert shared.run(source.replace("{}", "'of_one_session'")) == [[True]]
    assert shared.run(source.replace("{}", "")) == [[False]]


def test_a_controller_that_is_killed_leaves_nothing(shared: Ground) -> None:
    victim = shared.start("""
from multiprocessing.shared_memory import SharedMemory
def body():
    note("child", subprocess.Popen(["sleep", "1000"]).pid)
    SharedMemory("rankdrill-test-%d" % os.getpid(), create=True, size=1 << 16)
    note("template", os.getppid())
    note("rank", os.getpid())
    time.sleep(1000)
World(1).run(body, deadline=1000)
""")
    try:
        pids = victim.wait_notes(3)
        segment = Path(f"/dev/shm/rankdrill-test-{pids['rank']}")
        assert segment.exists()
        assert shared.only()["templates"] == 1
        runs = set(shared.home.glob(f"run-{victim.pid}-*"))
        assert runs
    finally:
        os.kill(victim.pid, signal.SIGKILL)
        victim.process.communicate()
    wait_until(lambda: not any(map(alive, pids.values())), f"of {pids} some live on")
    wait_until(lambda: not any(run.exists() for run in runs), "the private directory is left")
    wait_until(lambda: not segment.exists(), "the segment is left")
    wait_until(lambda: shared.only()["templates"] == 0, "the nursery takes it for alive")
    for path in shared.path.glob("*.pid"):
        path.unlink()


def test_a_template_that_is_killed_is_a_finding_and_the_next_run_gets_another(shared: Ground) -> None:
    said = shared.run("""
def body():
    child = subprocess.Popen(["sleep", "1000"])
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)
world = World(1)
before = {pid for pid in os.listdir("/proc") if pid.isdigit()}
say(str(world.run(body, deadline=1000).verdict))
def sleeps(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read() == "sleep\\x001000\\x00"
    except OSError:
        return False
time.sleep(0.2)
say([pid for pid in set(os.listdir("/proc")) - before if pid.isdigit() and sleeps(pid)])
def whose():
    return parent(os.getppid())
say(*world.run(whose).unwrap())
""")
    assert said == [["died"], [[]], [shared.only()["pid"]]]


def test_a_nursery_that_is_killed_takes_no_session_along(alone: Ground) -> None:
    said = alone.run("""
def whose():
    return parent(os.getppid())
with World(2) as world:
    nursery = world.run(whose).unwrap()[0]
    os.kill(nursery, signal.SIGKILL)
    world.discard()
    now = world.run(whose).unwrap()[0]
    say(nursery, now)
""")
    [[nursery, now]] = said
    assert now != nursery, "the template lives on, somebody else's child"
    assert len(list(alone.home.glob("nursery-*.socket"))) == 1, "what the killed one has left"
    [[another, _]] = alone.run(WHOSE)
    assert another == alone.only()["pid"] != nursery
    assert not list(alone.home.glob("run-*"))


@pytest.mark.nightly
def test_controllers_that_come_at_once_start_one_nursery(alone: Ground) -> None:
    controllers = [alone.start(WHOSE) for _ in range(4)]
    said = [each.process.communicate(timeout=BOUND_S) for each in controllers]
    assert [errors for _, errors in said] == [""] * 4
    assert {json.loads(out)[0] for out, _ in said} == {alone.only()["pid"]}


@pytest.mark.nightly
def test_it_ends_when_nobody_has_come_for_as_long_as_asked_for(alone: Ground) -> None:
    alone.home.mkdir(mode=0o700)
    NurseryPlace(alone.home, "of-one-that-was-killed").listen().close()
    assert list(alone.home.glob("nursery-*"))
    [[nursery, _]] = alone.run(WHOSE, **{KEEP_VARIABLE: "0.5"})
    wait_until(lambda: not alive(nursery), "it stays")
    assert [path.name for path in alone.home.iterdir()] == [LOCK_NAME], "nor does it leave what others had left"


def test_it_ends_when_dismissed_but_not_before_its_templates(alone: Ground) -> None:
    alone.run(WHOSE)
    session = alone.start("""
def body():
    note("template", os.getppid())
with World(1) as world:
    world.run(body).unwrap()
    sys.stdin = open(0)
    while not os.path.exists(os.environ["TMPDIR"] + "/go"):
        time.sleep(0.01)
    world.discard()
    say(*world.run(os.getpid).unwrap())
""")
    session.wait_notes(1)
    nursery = alone.only()["pid"]
    alone.nurseries.dismiss()
    assert alone.only() | {"up_s": 0} == {"pid": nursery, "templates": 1, "up_s": 0, "keep_s": 0.0}
    (alone.path / "go").touch()
    _, errors = session.process.communicate(timeout=BOUND_S)
    assert errors == ""
    wait_until(lambda: not alive(nursery), "it stays")


def test_where_commands_lie_is_in_nobodys_way(shared: Ground) -> None:
    """``py.test`` lies beside ``pytest``, whose directory comes first in the path of its sessions."""
    [[first, _]] = shared.run(WHOSE)
    [[second, _]] = shared.run(f"sys.path.insert(0, {sysconfig.get_path('scripts')!r})" + WHOSE)
    assert first == second == shared.only()["pid"]


def test_a_module_of_the_controllers_own_path_is_not_passed_over(shared: Ground, tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("""
import sysconfig
with open(sysconfig.get_path("stdlib") + "/queue.py") as file:
    exec(compile(file.read(), "queue.py", "exec"))
MINE = True
""")
    said = shared.run(f"""
sys.path.insert(0, {str(tmp_path)!r})
def body():
    import queue
    return hasattr(queue, "MINE"), parent(os.getppid())
with World(1) as world:
    say(*world.run(body).unwrap()[0], os.getpid())
    from rankdrill.worlds.processes.client import TemplateClient
    print(json.dumps((TemplateClient.shared().directory / "template.log").read_text()))
""")
    [[mine, parent, controller], log] = said
    assert mine
    assert parent == controller, "it has started a template of its own"
    assert log.startswith(f"not forked from the nursery: queue would come from {tmp_path}, not from ")


def spec(directory: Path) -> RankSpec:
    return RankSpec(0, 1, "gloo", "cpu", str(directory), 60.0, 1, "run", contracts=False)


def forks(of: TemplateClient) -> None:
    """Have it fork a rank, and see it come up."""
    ranks = of.directory / "ranks"
    ranks.mkdir()
    handle = of.fork(spec(ranks))
    try:
        wait_until(lambda: list(handle.reader.messages()), "no rank comes up")
        assert handle.listen() is None
    finally:
        handle.close()


@pytest.mark.nightly
def test_a_nursery_that_does_not_answer_is_not_waited_for_for_ever(
    here: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.run(WHOSE)
    nursery = here.only()["pid"]
    os.kill(nursery, signal.SIGSTOP)
    try:
        late = TemplateClient()
        late.preload(["there_is_no_such_module"])
        with monkeypatch.context() as patch:
            patch.setattr(client, "START_BOUND_S", 1.0)
            hears, bounds = TemplateClient._hears_ready, iter([1.0, BOUND_S])

            def patient(self: TemplateClient) -> bool:
                patch.setattr(client, "START_BOUND_S", next(bounds))
                return hears(self)

            patch.setattr(TemplateClient, "_hears_ready", patient)
            late.wait_ready()
    finally:
        os.kill(nursery, signal.SIGCONT)
    try:
        assert isinstance(late._process, StartedTemplate)
        log = late.directory / client.LOG_NAME
        wait_until(lambda: "cannot preload there_is_no_such_module" in log.read_text(), "it has not been told again")
        wait_until(lambda: here.only()["templates"] == 0, "what it has forked too late stays")
        assert late.directory.exists(), "taken away by the one that came too late"
        forks(late)
    finally:
        late.close()


@pytest.mark.nightly
def test_a_session_may_end_before_its_template_is_there(alone: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(alone.path))
    monkeypatch.setenv(KEEP_VARIABLE, str(KEEP_S))
    early = TemplateClient()
    assert isinstance(early._process, ForkedTemplate)
    assert early.alive
    early.close()
    assert not early.alive
    assert not early.directory.exists()
    alone.run(WHOSE)  # by the time that this one has been served, the other would have been
    wait_until(lambda: alone.only()["templates"] == 0, "a template of nobody's")


def test_a_template_that_one_thread_ends_and_another_buries_is_let_go_once(
    shared: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(shared.path))
    monkeypatch.setenv(KEEP_VARIABLE, str(KEEP_S))
    late = TemplateClient()
    try:
        late.wait_ready()
        process = late._process
        assert isinstance(process, ForkedTemplate)
        pid = process.pid
        assert pid is not None
        with ThreadPoolExecutor(1) as elsewhere:
            ended: list[Future[None]] = []

            def meanwhile(session: int) -> None:
                assert session == pid
                ended.append(elsewhere.submit(process.end, BOUND_S))
                wait([*ended], timeout=0.5)  # the descriptor is closed, were it not for what keeps them apart

            monkeypatch.setattr(starting, "kill_session", meanwhile)
            os.kill(pid, signal.SIGKILL)
            late.bury()
            ended[0].result()
    finally:
        late.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a socket away")
def test_a_socket_of_somebody_else_is_left_alone(here: Ground) -> None:
    here.run(WHOSE)
    (path,) = here.home.glob("nursery-*.socket")
    os.chown(path, 12345, 12345)
    try:
        started = TemplateClient()
        try:
            assert isinstance(started._process, StartedTemplate)
            log = (started.directory / client.LOG_NAME).read_text()
            assert f"no nursery: PermissionError('{path} is not a socket of yours; remove it')" in log
        finally:
            started.close()
    finally:
        os.chown(path, 0, 0)
    assert here.only()["templates"] == 0


@pytest.mark.nightly
def test_a_file_in_the_way_is_left_alone(alone: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(alone.path))
    monkeypatch.setenv(KEEP_VARIABLE, str(KEEP_S))
    alone.home.mkdir(mode=0o700)
    path = alone.home / f"nursery-{nursery_key()}.socket"
    path.write_text("mine")
    started = TemplateClient()
    try:
        assert isinstance(started._process, StartedTemplate)
    finally:
        started.close()
    assert path.read_text() == "mine"


@pytest.mark.parametrize("said", ["", "fork", "fork 60.0", "fork nan", "fork many", "please", 99 * "please"])
def test_a_nursery_does_not_die_of_what_it_is_told(here: Ground, said: str) -> None:
    if not here.nurseries.status():
        here.run(WHOSE)
    before = here.only()
    (place,) = NurseryPlace.all(here.home)
    for count in (0, 5):  # it needs five descriptors; these are no request
        with place.connect() as connection, open(os.devnull) as null:
            socket.send_fds(connection, [said.encode()], [null.fileno()] * count)
            here.only()
    wait_until(lambda: here.only()["templates"] == 0, "a template came of it")
    assert here.only() | {"up_s": 0} == before | {"up_s": 0}


def test_the_key_has_what_a_fork_cannot_change(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "rankdrill").mkdir()
    source = tmp_path / "rankdrill" / "__init__.py"
    source.write_text("")
    monkeypatch.setattr(key, "OUR_FOLDER", source.parent)
    seen = [nursery_key()]
    assert nursery_key() == seen[0]
    monkeypatch.setenv("SOMETHING", "else")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # a template has 1 anyway
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "another")
    assert nursery_key() == seen[0]
    for change in (
        lambda: os.utime(source, ns=(1, 1)),
        lambda: (tmp_path / "rankdrill" / "more.py").write_text(""),
        lambda: monkeypatch.setenv("PYTHONPATH", f"elsewhere:{os.environ.get('PYTHONPATH', '')}"),
        lambda: monkeypatch.chdir(tmp_path),  # from where `elsewhere` is another directory
        lambda: monkeypatch.setenv("TORCH_LOGS", "all"),
        lambda: monkeypatch.setenv("LD_PRELOAD", ""),
        lambda: monkeypatch.setattr(sys, "executable", "/elsewhere/python"),
        lambda: monkeypatch.setattr(os, "getpriority", lambda *_: 99),  # which is nobody's
    ):
        change()
        seen.append(nursery_key())
    assert len(set(seen)) == len(seen)


READS = """
import json, os, sys
sys.modules["tqdm"] = None  # which torch imports where it is installed: it goes through all, for those of its own
read = set()
class Noticing(type(os.environ)):
    def __getitem__(self, name):
        read.add(name)
        return super().__getitem__(name)
os.environ.__class__ = Noticing
import rankdrill.worlds.processes.preload, rankdrill.worlds.processes.rank
print(json.dumps(sorted(read)))
"""


def test_every_variable_that_imports_read_is_in_the_key() -> None:
    from rankdrill.worlds.processes.nursery.key import matters

    ran = subprocess.run([sys.executable, "-c", READS], capture_output=True, text=True, check=True, timeout=BOUND_S)
    read = set(json.loads(ran.stdout))
    assert "CI" in read, "nothing is noticed"
    assert {name for name in read if not matters(name)} <= {"HOME"}, "where it leads is looked up again when it is used"
    assert matters("TQDM_DISABLE")


@pytest.mark.parametrize("bad", ["soon", "-1", "nan", "inf", "1e9"])
def test_a_time_that_is_none_is_refused(bad: str) -> None:
    with pytest.raises(UsageError, match=f"{KEEP_VARIABLE}='{bad}': say for how many seconds, 600 for example"):
        keep_seconds({KEEP_VARIABLE: bad})


def test_without_a_time_there_is_no_nursery() -> None:
    assert [keep_seconds(each) for each in ({}, {KEEP_VARIABLE: ""}, {KEEP_VARIABLE: "0"})] == [None] * 3
    assert keep_seconds({KEEP_VARIABLE: "1.5"}) == 1.5


@pytest.fixture
def path(tmp_path: Path) -> list[str]:
    for name in ("first", "second", "third"):
        (tmp_path / name).mkdir()
    (tmp_path / "second" / "module.py").touch()
    (tmp_path / "second" / "package").mkdir()
    (tmp_path / "second" / "package" / "__init__.py").touch()
    (tmp_path / "third" / f"module{EXTENSION_SUFFIXES[0]}").touch()
    return [str(tmp_path / name) for name in ("first", "second", "nowhere", "third")]


def test_modules_come_from_where_they_are_first(path: list[str]) -> None:
    first, second, _, third = path
    names = {"module", "package", "absent"}
    taken = suppliers(path, names)
    assert taken == {"module": second, "package": second}
    assert unlike([*path, first, third], taken, names) is None
    assert unlike([third, *path], taken, names) == f"module would come from {third}, not from {second}"
    assert unlike([third], taken, {"package"}) == f"package would come from nowhere in sys.path, not from {second}"
    (Path(first) / "module.test").touch()
    (Path(first) / "package.py.orig").touch()
    assert unlike(path, taken, names) is None, "files that nobody imports are passed over"
    (Path(first) / "package").mkdir()
    assert unlike(path, taken, names) is None, "a directory alone is passed over"
    (Path(first) / "package" / "__init__.py").touch()
    assert unlike(path, taken, names) == f"package would come from {first}, not from {second}"


def test_modules_may_come_from_an_archive_or_the_current_directory(
    path: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("module.py", "")
    assert suppliers([str(tmp_path / "all.zip"), *path], {"module"}) == {"module": str(tmp_path / "all.zip")}
    monkeypatch.chdir(path[1])
    assert suppliers(["", *path], {"module"}) == {"module": ""}
    assert unlike([""], {"module": path[1]}, {"module"}) == (
        f"module would come from the current directory, not from {path[1]}"
    )


def test_what_torch_itself_sets_when_it_imports_its_compiler_is_not_in_the_key() -> None:
    from rankdrill.worlds.processes.nursery.key import matters

    assert not matters("TORCHINDUCTOR_CACHE_DIR")
    assert matters("TORCHINDUCTOR_FORCE_DISABLE_CACHES")
