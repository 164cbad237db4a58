"""Mistakes in a command: exit code 2, one line that names the value and the remedy, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rankdrill.cli import main

BOUND_S = 120.0
ONE_CASE = ["drill", "--path", "all_gather", "--ranks", "2", "--fault", "none", "--payload", "small", "--jobs", "1"]


NO_NAMES = [":", "::", ":attribute", "os:", ".:attribute", "..module:attribute"]

BROKEN = {
    "raise RuntimeError('boom\\nand more')": "RuntimeError: boom and more",
    "def f(:": "SyntaxError: invalid syntax",
    "import sys; sys.exit(7)": "SystemExit: 7",
    "import no_such_module": "ModuleNotFoundError: No module named 'no_such_module'",
    "def __getattr__(name): raise ValueError(name)": "ValueError: ADAPTER",
}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["drill", "--path", "all_gater"], "unknown path 'all_gater': did you mean all_gather"),
        (["drill", "--path", "zzz"], "unknown path 'zzz': choose from NFSWorkspace, all_gather"),
        (["drill", "--path", "nosuchmodule:ADAPTER"], "No module named 'nosuchmodule'; give module:attribute"),
        (["drill", "--path", "os:sep"], "--path 'os:sep' is a str; give module:attribute"),
        *((["drill", "--path", name], f"--path {name!r}: give module:attribute") for name in NO_NAMES),
        (["drill", "--ranks", "0"], "a drilled world has 1 to 64 ranks, not 0"),
        (["drill", "--ranks", "2,four"], "'four' is no number; give world sizes such as 2,4"),
        (["drill", "--ranks", "1000000"], "not 1000000"),
        (["drill", "--fault", "kil"], "unknown fault 'kil': did you mean kill"),
        (["drill", "--fault", "rank 1 does what it likes"], "rank 1 does what it likes"),
        (["drill", "--payload", "smal"], "unknown payload 'smal': did you mean small"),
        (["drill", "--json", "/no/such/directory/x.json"], "there is no directory /no/such/directory; make it first"),
        (["drill", "--junit", "/"], "--junit /: is a directory; give a file"),
        (["drill", "--html", "/"], "--html /: is a directory; give a file"),
        (["drill", "--jobs", "0"], "0 is not in the range"),
        (["drill", "--deadline", "0"], "--deadline 0.0: give seconds above 0"),
        (["drill", "--timeout", "-1"], "--timeout -1.0: give seconds above 0"),
        (["dril"], "No such command 'dril'"),
    ],
)
def test_a_mistake_is_refused_in_one_line(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert "Traceback" not in result.output
    assert result.output.strip().count("\n") <= 3


@pytest.mark.parametrize("source", BROKEN)
def test_a_module_that_raises_is_told_of_in_one_line(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_adapter.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "broken_adapter", raising=False)
    result = CliRunner().invoke(main, ["drill", "--path", "broken_adapter:ADAPTER"])
    assert result.exit_code == 2, result.output
    assert f"--path 'broken_adapter:ADAPTER': {BROKEN[source]}" in result.output
    assert result.output.strip().count("\n") == 0


FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="this machine has no /dev/full")


@needs_full
@pytest.mark.parametrize("arguments", [["--version"], pytest.param(["drill", "--list"], marks=pytest.mark.nightly)])
def test_an_output_that_is_full_is_told_of_in_one_line(arguments: list[str]) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rankdrill", *arguments],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=BOUND_S, check=False,
        )  # fmt: skip
    said = "Error: standard output cannot be written: No space left on device; send it elsewhere\n"
    assert (done.returncode, done.stderr) == (2, said)


@needs_full
@pytest.mark.parametrize("option", ["--json", "--junit", "--html"])
def test_a_document_that_is_full_is_told_of_and_the_drill_shown(option: str) -> None:
    result = CliRunner().invoke(main, [*ONE_CASE, option, str(FULL)])
    assert result.exit_code == 2, result.output
    assert f"Error: {option} {FULL}: No space left on device; give another file" in result.output
    assert "1 case passed" in result.output


@needs_full
def test_a_document_is_written_though_the_output_is_full(tmp_path: Path) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rankdrill", *ONE_CASE, "--json", str(tmp_path / "drill.json")],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=BOUND_S, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert "standard output cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads((tmp_path / "drill.json").read_text())["ok"] is True
