"""What was once recorded is explained ever after, in each version; and a hostile file is one error."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rankdrill.cli import main
from rankdrill.diagnosis import FindingKind
from rankdrill.errors import DumpError
from rankdrill.explain.explanation import Explanation
from rankdrill.explain.flight.explained import NEWEST, explain_dumps
from rankdrill.explain.flight.load import load
from rankdrill.explain.recording import explain_recording
from rankdrill.ledger.format import VERSION
from rankdrill.replay import play, score_of_dumps, score_of_recording
from tests.explain.fixture_dumps import JSON_VERSIONS, made_up
from tests.explain.flights import VERSIONS, write
from tests.explain.test_opcodes import HOSTILE
from tests.fixtures import fixture

FLIGHT, HOSTILE_FILES, LEDGERS = fixture("flight"), fixture("hostile"), fixture("ledger_versions")
REAL = sorted(FLIGHT.glob("torch-*"))
FILES = sorted(path for path in HOSTILE_FILES.iterdir() if path.name != "ORIGIN")
LATER_S = 600.0  # that a watchdog waits before it has dumps written
BOUND_S = 20.0


def explained(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["explain", *map(str, arguments)])


def of_a_hang(folder: Path, to: Path) -> Path:
    """`folder` as it lay there when the hang had lasted."""
    shutil.copytree(folder, to)
    for file in to.iterdir():
        os.utime(file, (time.time() + LATER_S,) * 2)
    return to


def test_there_is_a_folder_for_each_version() -> None:
    there = {path.name for path in FLIGHT.iterdir()}
    assert {*VERSIONS, *(f"{version}-json" for version in JSON_VERSIONS)} <= there
    assert ".".join(map(str, NEWEST)) in VERSIONS
    assert len(REAL) >= 3
    assert {path.name for path in LEDGERS.iterdir()} == {"ORIGIN", *(str(number) for number in range(1, VERSION + 1))}
    assert {f"{name}.pickle" for name in HOSTILE} <= {path.name for path in FILES}


@pytest.mark.parametrize("version", [*VERSIONS, *(f"{version}-json" for version in JSON_VERSIONS)])
def test_a_dump_of_each_version_is_explained_and_played(version: str) -> None:
    found = explain_dumps([FLIGHT / version])
    (cause,) = found.causes
    assert cause.finding.culprits == (2,)
    if not version.endswith("json"):
        assert (cause.finding.kind, cause.finding.step) == (FindingKind.MISSING, "broadcast #8 on 'default'")
        assert [site.line for site in cause.finding.sides[0].sites if site] == [44]
    assert any("newer than" in gap for gap in found.gaps) is version.startswith("2.11")
    score = score_of_dumps([FLIGHT / version])
    assert len(score.parts[0].calls) == 8


@pytest.mark.parametrize("backend", ["ncclx", "gloo"])
def test_so_are_those_of_torchcomms(backend: str) -> None:
    (cause,) = explain_dumps([FLIGHT / f"torchcomms-{backend}"]).causes
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.MISSING, (2,))
    assert cause.finding.step == "broadcast #7 on 'main_comm'"


@pytest.mark.parametrize("prefix", ["rank_", "json_"])
@pytest.mark.parametrize("folder", REAL, ids=lambda folder: folder.name)
def test_what_torch_has_written_is_explained_and_played(folder: Path, prefix: str, tmp_path: Path) -> None:
    dumps = of_a_hang(folder, tmp_path / "dumps")
    late = {"late": (1,), "late-in-a-group": (2,), "well": ()}[folder.name.partition("gloo-")[2]]
    assert explain_dumps([dumps], prefix).culprits == late
    score = score_of_dumps([dumps], prefix)
    assert score.culprits == late
    assert play(score, deadline=60.0).as_told(score)


def test_a_ledger_of_each_former_version_is_refused_by_its_name() -> None:
    for version in range(1, VERSION):
        done = explained(LEDGERS / str(version))
        assert done.exit_code == 0
        ledgers = [path.name for path in (LEDGERS / str(version)).glob("*.ledger")]
        refused = [f"{name} has ledger version {version} with records of " in done.output for name in ledgers]
        assert len(refused) > 1
        assert all(refused)
        assert f"this rankdrill reads version {VERSION}" in done.output


def test_a_ledger_of_this_version_is_explained_and_played() -> None:
    (cause,) = explain_recording(LEDGERS / str(VERSION)).causes
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.MISSING, (2,))
    assert cause.finding.step == "all_reduce #3 on 'default'"
    score = score_of_recording(LEDGERS / str(VERSION))
    assert play(score, deadline=60.0).verdict == score.verdict == "missing call: 2"
    assert score.groups == {"1": (0, 1), "2": (2, 3)}, "who is in them was written down before the ring wrapped"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_hostile_file_is_one_error(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    if file.name == "entries-of-numbers.json":  # which is a dump, that says nonsense
        assert load(file.read_bytes())["entries"] == [1, 2, 3]
    else:
        with pytest.raises(DumpError) as refused:
            load(file.read_bytes())
        assert len(str(refused.value)) < 200
    assert time.monotonic() - began < BOUND_S
    assert "this was run" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_beside_a_hostile_file_the_others_are_explained(file: Path, tmp_path: Path) -> None:
    write(made_up(), tmp_path, prefix="rank_")
    (tmp_path / "rank_0").write_bytes(file.read_bytes())
    found = explain_dumps([tmp_path])
    assert isinstance(found, Explanation)
    assert found.culprits == (2,)
    assert [gap for gap in found.gaps if gap.startswith("rank_0 ")]
    done = explained(tmp_path)
    assert done.exit_code == 1
    assert done.output.isprintable() or set(done.output) - {"\n"} == {c for c in done.output if c.isprintable()}
