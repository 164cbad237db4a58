"""What `rankdrill doctor` finds."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from rankdrill.cli import machine, main
from rankdrill.worlds.home import home
from rankdrill.worlds.processes.client import TemplateClient
from rankdrill.worlds.processes.nursery import Nurseries


def test_it_says_what_is_here_and_that_rankdrill_runs() -> None:
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 0, result.output
    for word in ("Python", "torch", "gloo", "/dev/shm", "open files", "strace", "py-spy", "2 ranks met after"):
        assert word in result.output
    assert "tarfile.bltn_open" in result.output, "what is not seen is said"
    assert "rankdrill runs here" in result.output


def test_json_has_a_level_for_every_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(machine._CHECKS, "trial run", lambda: (machine.Level.OK, "not tried", ""))
    result = CliRunner().invoke(main, ["doctor", "--json"])
    assert result.exit_code == 0
    document = json.loads(result.output)
    assert (document["schema"], document["ok"]) == (1, True)
    assert {finding["name"] for finding in document["findings"]} == set(machine._CHECKS)
    assert {finding["level"] for finding in document["findings"]} <= set(machine.Level)


@pytest.mark.nightly
def test_a_nursery_is_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(machine, "_CHECKS", {"nursery": machine._nursery})
    assert "none" in CliRunner().invoke(main, ["doctor"]).output
    monkeypatch.setenv("RANKDRILL_KEEP_TEMPLATE", "60")
    template = TemplateClient()
    template.wait_ready()
    told = " ".join(CliRunner().invoke(main, ["doctor"]).output.split())
    template.close()
    (status,) = (nurseries := Nurseries(home())).status()
    nurseries.dismiss()
    assert f"pid {status['pid']} with 1 templates, stays 60 s idle" in told


def test_a_machine_that_cannot_run_ranks_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = {"torch": lambda: (machine.Level.FATAL, "1.0", "2.6 or newer is needed")}
    monkeypatch.setattr(machine, "_CHECKS", checks)
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 1
    assert "rankdrill cannot run here: torch" in result.output
    result = CliRunner().invoke(main, ["doctor", "--json"])
    assert result.exit_code == 1
    assert json.loads(result.output)["ok"] is False


def test_a_check_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> tuple[machine.Level, str, str]:
        raise OSError("no /proc")

    monkeypatch.setattr(machine, "_CHECKS", {"cores": fails})
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 0
    assert "cannot tell: OSError: no /proc" in result.output
