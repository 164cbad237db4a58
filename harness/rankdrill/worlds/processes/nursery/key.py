"""Which nursery serves whom: the key names all that a process forked from it could not change any more."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rankdrill.native import LANE_VARIABLE
from rankdrill.whose import OUR_FOLDER

__all__ = [
    "LIMITS",
    "SINGLE_THREADED",
    "environment_to_start_in",
    "key_of",
    "nursery_key",
    "stamp_of_files",
    "stamp_of_process",
]

SINGLE_THREADED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Threads that a fork would not take along, and that then hold locks for ever: none may start in a template."""

# Read while a template's modules are imported, by themselves or by the libraries below them.
_PREFIXES = (
    *("PYTHON", "_PYTHON", "LD_", "MALLOC_", "GLIBC_", "LANG", "LC_", "TZ"),
    *("TORCH", "PYTORCH", "ATEN", "ATen", "C10", "CAFFE2", "KINETO", "COMPILE_", "FX_", "GLOO", "TP_"),
    *("OMP", "KMP", "GOMP", "LIBOMP", "MKL", "OPENBLAS", "GOTO", "BLIS", "DNNL", "ONEDNN", "NPY", "NUMPY"),
    *("CUDA", "CUBLAS", "CUDNN", "NCCL", "NVIDIA", "HIP", "HSA", "ROC", "AMD_"),
    *("HYPOTHESIS", "SYMPY", "MPMATH", "GMPY", "TQDM_"),
)
_OF_A_RUN = "TORCHELASTIC_"  # a launcher's, another for each run; read when a group is made
_SET_BY_TORCH = frozenset({"TORCHINDUCTOR_CACHE_DIR"})  # by its compiler, which an optimizer imports
# By these Hypothesis tells, when it is imported, that it runs for a machine.
_OF_CI = frozenset(
    {
        *("CI", "BUILDKITE", "CIRCLECI", "CIRRUS_CI", "CODEBUILD_BUILD_ID", "GITHUB_ACTIONS", "GITLAB_CI"),
        *("HEROKU_TEST_RUN_ID", "TEAMCITY_VERSION", "TF_BUILD", "bamboo.buildKey"),
        "__TOX_ENVIRONMENT_VARIABLE_ORIGINAL_CI",
    }
)
_PRELOADED = ("torch", "numpy", "pytest", "hypothesis", "cloudpickle")
LIMITS = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
_STATUS = ("Uid", "Gid", "Groups", "Cap", "NoNewPrivs", "Seccomp")  # what a process may do, and may not win back


def environment_to_start_in() -> dict[str, str]:
    """This process's environment, for an interpreter that ranks, or templates, are to be forked from."""
    # What measures coverage begins by these, and would measure that process; ranks are measured by their controllers.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COV_", "COVERAGE_"))}
    return kept | SINGLE_THREADED


def nursery_key() -> str:
    """The key of the nursery that may serve this process."""
    return key_of(stamp_of_process(), stamp_of_files())


def key_of(*stamps: dict[str, Any]) -> str:
    """Sixteen digits that no other stamps have."""
    return hashlib.sha256(json.dumps(stamps, sort_keys=True).encode()).hexdigest()[:16]


def matters(variable: str) -> bool:
    """Whether the value of an environment variable may change what an import gives."""
    if variable in SINGLE_THREADED or variable in _SET_BY_TORCH or variable.startswith(_OF_A_RUN):
        return False
    return variable.startswith(_PREFIXES) or variable in _OF_CI or variable == LANE_VARIABLE


def stamp_of_process() -> dict[str, Any]:
    """Interpreter, environment, rights, limits, cgroup, namespaces and root of this process."""
    root = os.stat("/")
    status = Path("/proc/self/status").read_text().splitlines()
    hard = {name: resource.getrlimit(number)[1] for name, number in LIMITS.items()}
    return {
        "python": [sys.executable, sys.version, sys.prefix, sys.base_prefix],
        "path": _python_path(os.environ.get("PYTHONPATH", "")),
        "environ": {name: value for name, value in os.environ.items() if matters(name)},
        "rights": [line for line in status if line.startswith(_STATUS)],
        "limits": [hard, os.getpriority(os.PRIO_PROCESS, 0)],  # nor can these be raised again
        "cgroup": Path("/proc/self/cgroup").read_text(),
        "namespaces": {name: os.readlink(f"/proc/self/ns/{name}") for name in os.listdir("/proc/self/ns")},
        "root": [root.st_dev, root.st_ino],
        "scheduler": os.sched_getscheduler(0),
        "oom": Path("/proc/self/oom_score_adj").read_text(),
    }


def _python_path(variable: str) -> list[str]:
    """Where an interpreter would look; it takes relative entries, empty ones too, from where it is started."""
    return [os.path.abspath(entry) for entry in variable.split(os.pathsep)] if variable else []


def stamp_of_files() -> dict[str, Any]:
    """What a template imports: rankdrill's own files, and whether the others have been installed anew."""
    own = OUR_FOLDER
    others = [Path(origin) for origin in map(_origin, _PRELOADED) if origin]
    installed = {path for other in others for path in (other, other.parents[1])}  # a directory that pip adds to changes
    return {"rankdrill": dict(_times(own)), "installed": {str(path): path.stat().st_mtime_ns for path in installed}}


def _origin(name: str) -> str | None:
    spec = importlib.util.find_spec(name)
    return spec.origin if spec is not None else None


def _times(package: Path) -> Iterator[tuple[str, list[int]]]:
    for path in (*package.rglob("*.py"), *package.rglob("*.so")):
        found = path.stat()
        yield str(path), [found.st_mtime_ns, found.st_size]
