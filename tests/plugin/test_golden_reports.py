"""What somebody reads whose test has failed, whole: each test of `fixtures/reports` beside its report."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.fixtures import fixture
from tests.golden import agrees, steady
from tests.plugin.conftest import ALREADY_IMPORTED

FOLDER = fixture("reports")
OPTIONS = [
    *("-q", "--rankdrill-seed=1", "-p", "no:cacheprovider", "-p", "no:asyncio", "-W", ALREADY_IMPORTED),
    "--hypothesis-profile=default",  # on CI Hypothesis takes another, which prints more
]


@pytest.fixture(autouse=True)
def profile_of_the_suite() -> Iterator[None]:
    """What a session in this process loads would stay, and the tests after it have Hypothesis's deadline again."""
    profile = settings.get_current_profile_name()
    yield
    settings.load_profile(profile)


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("test_*.py")))
def test_the_report_reads_as_it_was_accepted(
    name: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for sign_of_ci in ("CI", "BUILD_NUMBER"):  # there pytest shortens less
        monkeypatch.delenv(sign_of_ci, raising=False)
    # Where py-spy is installed, who is stuck has a C stack too, which is another on each machine.
    monkeypatch.setattr("rankdrill.worlds.processes.watching.supervise.native_stacks", lambda _: {})
    # A survivor of a death has half a second to say what it did to it, and on a busy machine may not have said it.
    monkeypatch.setattr("rankdrill.worlds.processes.watching.supervise.MOURNING_S", 10.0)
    shutil.copy(FOLDER / f"{name}.py", pytester.path)
    result = pytester.runpytest_inprocess(f"{name}.py", *OPTIONS)
    agrees(steady(str(result.stdout), pytester.path), FOLDER / f"{name}.txt")
