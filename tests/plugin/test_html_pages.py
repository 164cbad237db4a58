"""``--rankdrill-html``: of each test on ranks that failed a page, named in its report."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin.conftest import Ran
from tests.report.browser import data_of

Run = Callable[..., Ran]
SOURCE = """
@pytest.fixture
def broken(rank):
    yield
    assert rank.index == 0, "in teardown"

@pytest.mark.ranks(2)
def test_passes(rank):
    rank.barrier()

@pytest.mark.ranks(3)
def test_leaves_one_out(rank):
    if rank.index != 1:
        dist.all_reduce(torch.ones(1))
    rank.barrier()

@pytest.mark.ranks(2)
@pytest.mark.parametrize("name", ["a/b", "a-b"])
def test_named(rank, name):
    assert rank.index == 0

@pytest.mark.ranks(2)
def test_at_the_end(rank, broken):
    pass

@pytest.mark.ranks(2)
@pytest.mark.xfail
def test_fails_as_expected(rank):
    assert False

def test_without_ranks():
    assert False
"""


@pytest.mark.parametrize("options", [(), pytest.param(("-n", "2"), marks=pytest.mark.nightly)])
def test_what_failed_has_a_page(run: Run, pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    ran = run(SOURCE, "--rankdrill-html=pages", *options, subprocess=bool(options))
    ran.result.assert_outcomes(passed=2, failed=4, errors=1, xfailed=1)
    pages = {path.name: path.read_text() for path in (pytester.path / "pages").iterdir()}
    assert len(pages) == 4
    left_out = pages["test_it.py-test_leaves_one_out.html"]
    assert data_of(left_out)["headline"].startswith("missing call: rank 1 leaves out all_reduce #0")
    assert "test_leaves_one_out" in data_of(left_out)["repeat"]
    assert any(name.endswith("-teardown.html") for name in pages)
    assert sum("test_named" in name for name in pages) == 2
    assert f"rankdrill: 4 pages of failed tests in {pytester.path / 'pages'}" in ran.screen
    for name in pages:
        assert str(pytester.path / "pages" / name) in ran.screen


def test_where_all_is_well_there_is_none(run: Run, pytester: pytest.Pytester) -> None:
    source = "@pytest.mark.ranks(2)\ndef test_passes(rank):\n    rank.barrier()\n"
    ran = run(source, "--rankdrill-html=deep/pages")
    ran.result.assert_outcomes(passed=1)
    assert list((pytester.path / "deep" / "pages").iterdir()) == []
    assert "pages of failed tests" not in ran.screen


def test_what_is_no_directory_is_refused_at_once(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "pages").write_text("")
    ran = run(SOURCE, "--rankdrill-html=pages")
    assert ran.result.ret == pytest.ExitCode.USAGE_ERROR
    said = "\n".join(ran.result.errlines)
    assert "--rankdrill-html" in said
    assert "File exists; give a directory" in said
