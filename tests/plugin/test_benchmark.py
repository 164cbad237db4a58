"""pytest-benchmark: what rank 0 measures is in the controller's table and file."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.plugin.conftest import Ran

pytest.importorskip("pytest_benchmark")
Run = Callable[..., Ran]


def test_figures_of_rank_0_reach_the_table_and_the_file(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # a worker of pytest-xdist measures nothing
    ran = run(
        """
@pytest.mark.ranks(2)
def test_sum(benchmark):
    benchmark(sum, range(100))

@pytest.mark.ranks(2)
def test_all_reduce(benchmark, rank):
    benchmark.pedantic(dist.all_reduce, args=(torch.ones(1),), rounds=7)

def test_plain(benchmark):
    benchmark(sum, range(100))
""",
        "--benchmark-json=figures.json",
        "--benchmark-max-time=0.05",
    )
    ran.result.assert_outcomes(passed=3)
    figures = json.loads((pytester.path / "figures.json").read_text())["benchmarks"]
    assert sorted(figure["name"] for figure in figures) == ["test_all_reduce", "test_plain", "test_sum"]
    rounds = {figure["name"]: figure["stats"]["rounds"] for figure in figures}
    assert rounds["test_all_reduce"] == 7
    assert "benchmark: 3 tests" in ran.screen
