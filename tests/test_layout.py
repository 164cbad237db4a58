"""The shape of the source: who imports whom, what a face exports, how long things get."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = (ROOT / "harness", ROOT / "strategies")
PACKAGE = "rankdrill"

# From the top down; a floor imports from its own and from those below it.
FLOORS: tuple[frozenset[str], ...] = (
    frozenset({"cli", "plugin", "__main__", "record"}),
    frozenset({"report", "conformance", "launch", "explain", "recording", "replay", "watchdog"}),
    frozenset({"worlds"}),
    frozenset({"diagnosis", "faults"}),
    frozenset({"boundary"}),
    frozenset({"ledger"}),
    frozenset({"step", "whose"}),
    frozenset({"site"}),
    frozenset({"drawing", "errors", "outputs", "native", "host", "motion", "strictness"}),
)
GROUND = "gathers"  # stands beside, in production without the rest
GROUND_MAY_IMPORT = {"torch", "numpy", "rankdrill.errors", "rankdrill.gathers"}
# Its rooms, what one calls on top; each imports from itself and from those below it.
GATHER_ROOMS = ("", "storage", "transfer", "agreement", "local", "encoding", "network", "host")
FILE_LINES = 400
FUNCTION_LINES = 70
FACE_LINES = 40
TORCH_SEAMS = (
    "boundary/torch_seam.py",
    "boundary/modes_seam.py",
    "boundary/batches_seam.py",
    "boundary/options_seam.py",
    "boundary/tensor_seam.py",
    "gathers/network/torch_seam.py",
    "recording/torch_seam.py",
)  # gathers work without the rest, so have their own; what only recording needs, and modes, made the first too long
PRIVATE_TORCH = re.compile(
    r"torch\._C\b|torch\._(?!_)|torch\.testing\._internal|(distributed_c10d|c10d)(\.|\s+import\s+)_(?!_)"
)
MACHINE_PATH = re.compile(r"(?<![\w./~])/(home|Users|work|root)/\w")


@dataclass(frozen=True)
class Source:
    """One parsed file. `name` is its dotted name: ``rankdrill.worlds.judge``."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def where(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def name(self) -> str:
        base = next(base for base in SOURCES if self.path.is_relative_to(base))
        parts = self.path.relative_to(base).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def is_face(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def room(self) -> str:
        """The part of the package that this file belongs to: ``worlds``."""
        return self.name.split(".")[1] if "." in self.name else ""

    def imports(self) -> Iterator[tuple[int, str]]:
        """Every module named in an import, wherever it stands, with its line."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.where}:{node.lineno}: relative import"
                for alias in node.names:
                    yield node.lineno, f"{node.module}.{alias.name}"


@cache
def sources() -> tuple[Source, ...]:
    paths = sorted(path for base in SOURCES for path in base.rglob("*.py") if "egg-info" not in str(path))
    return tuple(Source(path, path.read_text(), ast.parse(path.read_text())) for path in paths)


def harness() -> list[Source]:
    return [source for source in sources() if source.name.split(".")[0] == PACKAGE]


def report(violations: list[str]) -> None:
    assert not violations, f"{len(violations)} violations:\n  " + "\n  ".join(violations)


def floor_of(room: str) -> int | None:
    return next((level for level, rooms in enumerate(FLOORS) if room in rooms), None)


def test_every_room_has_a_floor() -> None:
    unknown = {source.room for source in harness()} - {"", GROUND} - frozenset().union(*FLOORS)
    report([f"harness/rankdrill/{room} is on no floor of this test" for room in sorted(unknown)])


def test_imports_run_downwards() -> None:
    violations = []
    for source in harness():
        here = floor_of(source.room)
        for line, name in source.imports():
            parts = name.split(".")
            if parts[0] != PACKAGE or here is None or len(parts) < 2:
                continue
            there = floor_of(parts[1])
            if (there is not None and there < here) or (parts[1] == GROUND and here > 1):
                violations.append(f"{source.where}:{line}: {source.room} imports {name}, which is above it")
    report(violations)


def imported_files() -> dict[str, list[str]]:
    """By the name of a file those that it imports: for types alone, in a function or for good."""
    names = {source.name for source in sources()}

    def file_of(name: str) -> str:
        return next((begin for begin in (name, name.rpartition(".")[0]) if begin in names), "")

    found = {source.name: [file_of(name) for _, name in source.imports()] for source in sources()}
    return {name: sorted({*others} - {"", name}) for name, others in found.items()}


def test_no_files_import_one_another_in_a_circle() -> None:
    """What two files need of each other is an idea of its own, and lies below both."""
    left = imported_files()
    while leaves := {name for name, others in left.items() if not set(others) & set(left)}:
        left = {name: others for name, others in left.items() if name not in leaves}
    walked: list[str] = []
    while left and len(walked) == len(set(walked)):
        walked.append(next(other for other in left[(walked or sorted(left))[-1]] if other in left))
    report([" imports ".join(walked[walked.index(walked[-1]) :])] if walked else [])


def test_gathers_stand_on_the_ground() -> None:
    violations = []
    for source in harness():
        if source.room != GROUND:
            continue
        for line, name in source.imports():
            top = name.split(".")[0]
            allowed = top in sys.stdlib_module_names or any(
                name == may or name.startswith(f"{may}.") for may in GROUND_MAY_IMPORT
            )
            if not allowed:
                violations.append(f"{source.where}:{line}: a gather imports {name}")
    report(violations)


def gather_room(name: str) -> str:
    """The room of the gathers that a dotted name below ``rankdrill.gathers`` is in."""
    part = name.split(".")[2] if name.count(".") >= 2 else ""
    return part if part in GATHER_ROOMS else ""


def test_gathers_import_downwards_among_their_rooms() -> None:
    violations = []
    rooms = {path.name for path in (ROOT / "harness" / PACKAGE / GROUND).iterdir() if (path / "__init__.py").exists()}
    assert rooms == set(GATHER_ROOMS) - {""}
    for source in harness():
        if source.room != GROUND or source.name == f"{PACKAGE}.{GROUND}":
            continue
        here = GATHER_ROOMS.index(gather_room(source.name))
        for line, name in source.imports():
            if name.startswith(f"{PACKAGE}.{GROUND}") and GATHER_ROOMS.index(gather_room(name)) < here:
                violations.append(f"{source.where}:{line}: {GATHER_ROOMS[here]} imports {name}, which is above it")
    report(violations)


def test_a_public_gather_has_a_file_of_its_name() -> None:
    (face,) = (source for source in harness() if source.name == f"{PACKAGE}.{GROUND}")
    called = {name for name in exported(face) if name.islower()}
    files = {
        source.name.split(".")[-1] for source in harness() if source.room == GROUND and source.name.count(".") == 2
    }
    assert files - set(GATHER_ROOMS) - called == {"nfs_workspace"}
    assert called <= files


def test_a_face_defines_nothing() -> None:
    violations = []
    for source in sources():
        if not source.is_face or source.name == PACKAGE:
            continue
        if len(source.text.splitlines()) >= FACE_LINES:
            violations.append(f"{source.where}: {len(source.text.splitlines())} lines, a face has under {FACE_LINES}")
        for node in source.tree.body:
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            names = isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]
            if not (docstring or names or isinstance(node, ast.Import | ast.ImportFrom)):
                violations.append(f"{source.where}:{node.lineno}: a face defines something: {ast.unparse(node)[:60]}")
    report(violations)


def exported(source: Source) -> list[str]:
    for node in source.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def test_each_name_is_exported_from_one_place() -> None:
    homes: dict[str, list[str]] = {}
    for source in sources():
        if source.is_face and source.name != PACKAGE:
            for name in exported(source):
                homes.setdefault(name, []).append(source.name)
    report([f"{name} is exported from {', '.join(found)}" for name, found in homes.items() if len(found) > 1])


def test_what_the_root_exports_has_a_home() -> None:
    (root,) = (source for source in sources() if source.name == PACKAGE and source.is_face)
    elsewhere = {name for source in sources() if source.is_face and source is not root for name in exported(source)}
    report(
        [f"rankdrill.{name} has no home" for name in exported(root) if name != "__version__" and name not in elsewhere]
    )


def names_of(source: Source) -> set[str]:
    """What a module defines or imports at its top level."""
    bound: set[str] = set()
    for node in source.tree.body:
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                bound |= {alias.asname or alias.name for alias in names}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.Assign() | ast.AnnAssign():
                stored = (each for each in ast.walk(node) if isinstance(each, ast.Name))
                bound |= {each.id for each in stored if isinstance(each.ctx, ast.Store)}
    return bound


def test_what_is_exported_exists() -> None:
    report(
        [
            f"{source.where}: exports {name}, which it does not have"
            for source in sources()
            if source.name != PACKAGE  # the root is lazy
            for name in exported(source)
            if name not in names_of(source)
        ]
    )


def test_files_and_functions_stay_short() -> None:
    violations = []
    for source in sources():
        lines = len(source.text.splitlines())
        if lines > FILE_LINES:
            violations.append(f"{source.where}: {lines} lines, at most {FILE_LINES}")
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES:
                    violations.append(f"{source.where}:{node.lineno}: {node.name} has {length} lines")
    report(violations)


def code_lines(source: Source) -> Iterator[tuple[int, str]]:
    """The lines without comments and strings: what is said about a name is no use of it."""
    inside = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            inside |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for number, line in enumerate(source.text.splitlines(), 1):
        if number not in inside:
            yield number, line.partition("#")[0]


def test_private_torch_stays_in_the_seams() -> None:
    violations = []
    for source in sources():
        if source.where.endswith(TORCH_SEAMS):
            continue
        for number, line in code_lines(source):
            if PRIVATE_TORCH.search(line):
                violations.append(f"{source.where}:{number}: {line.strip()}")
    report(violations)


def test_no_machine_paths() -> None:
    violations = []
    folders = ("harness", "strategies", "tests", "benchmarks", "examples", "docs", "fixtures")
    suffixes = {".py", ".md", ".toml", ".ini", ".cfg", ".txt", ".json", ".yml", ".yaml"}
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    for path in [*files, *ROOT.glob("*.*")]:
        if path == Path(__file__) or not path.is_file() or path.suffix not in suffixes or "egg-info" in str(path):
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if MACHINE_PATH.search(line):
                violations.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    report(violations)


def test_every_module_says_what_it_is() -> None:
    report([f"{source.where} has no docstring" for source in sources() if not ast.get_docstring(source.tree)])
