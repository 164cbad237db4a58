"""Help that teaches, quickly."""

from __future__ import annotations

import subprocess
import sys

import click
from click.testing import CliRunner

from rankdrill import __version__
from rankdrill.cli import main


def test_version() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert (result.exit_code, result.output) == (0, f"rankdrill {__version__}\n")


def test_help_shows_examples_and_exit_codes() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for word in ("Examples", "rankdrill doctor", "rankdrill drill --fault kill", "130 interrupted"):
        assert word in result.output
    assert "rankdrill drill --path gather_object" in CliRunner().invoke(main, ["drill", "--help"]).output


def test_every_option_is_explained() -> None:
    for command in main.commands.values():
        assert command.help
        assert all(option.help for option in command.params if isinstance(option, click.Option))


def test_help_imports_no_torch() -> None:
    code = "import sys, rankdrill.cli; sys.exit('torch' in sys.modules or 'rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_it_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "rankdrill", "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"rankdrill {__version__}\n")
