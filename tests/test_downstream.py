"""A repo of somebody else's, in examples/downstream: it installs the built wheel, and its tests pass there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("harness", "strategies", "pyproject.toml", "setup.py", "README.md", "LICENSE")
OURS = ("PYTHONPATH", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST")
# pytest-asyncio is installed for the tests of this repo, and warns of an option that the example does not set.
PYTEST = ("-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider")
DEADLINE_S = 400

pytest.importorskip("setuptools", "77", reason="building the wheel without a network needs it")


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example, with an environment that has the wheel, the example, and else what this one has."""
    place = tmp_path_factory.mktemp("downstream")
    source, repo = place / "rankdrill", place / "repo"
    source.mkdir()
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", ".pytest_cache", ".hypothesis", "build")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=unwanted)
        else:
            shutil.copy(ROOT / name, source / name)
    shutil.copytree(ROOT / "examples" / "downstream", repo, ignore=unwanted)
    build = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    _run(place, *build, "--wheel-dir", "wheels", source, repo)
    venv.create(repo / ".venv", with_pip=False)
    # Whatever is installed here can be imported there, but not the editable rankdrill: of a folder that is named in
    # a .pth file, .pth files do not count.
    there = _run(place, _python(repo), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(there, "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", _python(repo), "install", "--quiet", "--no-deps")
    _run(place, *pip, "--force-reinstall", *sorted((place / "wheels").iterdir()))
    return repo


def _python(repo: Path) -> Path:
    return repo / ".venv" / "bin" / "python"


def _run(where: Path, *command: object, codes: tuple[int, ...] = (0,)) -> str:
    words = [str(word) for word in command]
    environment = {name: value for name, value in os.environ.items() if name not in OURS}
    ran = subprocess.run(
        words, cwd=where, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert ran.returncode in codes, f"{words}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


@pytest.mark.nightly
def test_it_runs_on_the_wheel(repo: Path) -> None:
    found = _run(
        repo, _python(repo), "-c", "import rankdrill, scoreboard; print(rankdrill.__file__, scoreboard.__file__)"
    )
    assert all(path.startswith(str(repo / ".venv")) for path in found.split())
    screen = _run(repo, _python(repo), *PYTEST, "tests/test_scores.py")  # the others at night
    assert re.search(r"^\d+ passed", screen.splitlines()[-1]), screen


@pytest.mark.nightly
def test_its_tests_pass(repo: Path) -> None:
    screen = _run(repo, _python(repo), *PYTEST, "-rx", "--rankdrill-json=rankdrill.json")
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", screen.splitlines()[-1])}
    assert counts.keys() <= {"passed", "skipped", "xfailed", "xpassed", "in"}
    assert counts["passed"] > 40
    assert counts["xfailed"] > 0
    assert "not promised" in screen
    assert (repo / "rankdrill.json").read_text().startswith("{")


@pytest.mark.nightly
def test_a_defect_of_its_gather_is_found(repo: Path) -> None:
    """No padding: whoever has less to say than another makes a smaller tensor of it."""
    path = repo / ".venv" / "lib"
    gather = next(path.rglob("scoreboard/gather.py"))
    right = gather.read_text()
    gather.write_text(right.replace("longest = max(int(size) for size in sizes)", "longest = mine.numel()"))
    try:
        screen = _run(repo, _python(repo), *PYTEST, "-x", "tests/test_scores.py", codes=(1,))
        kit = ("-k", "right and keys", "tests/test_conformance.py")
        promised = _run(repo, _python(repo), *PYTEST, *kit, codes=(1,))
    finally:
        gather.write_text(right)
    assert "size mismatch, nobody in the majority: rank 0 enters all_gather #1" in screen
    assert "not right" in promised
    assert "(torch.distributed.all_gather_object comes through this)" in promised
