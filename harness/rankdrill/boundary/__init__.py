"""Where calls become steps: collectives, files, shared memory, objects, memory."""

from rankdrill.boundary.crossing import Boundary, Watch
from rankdrill.boundary.gate import Call, Interceptor, Proceed
from rankdrill.boundary.handles import Handles
from rankdrill.boundary.install import Prepared, install, names_before

__all__ = [
    "Boundary",
    "Call",
    "Handles",
    "Interceptor",
    "Prepared",
    "Proceed",
    "Watch",
    "install",
    "names_before",
]
