"""Where calls become steps: collectives, files, shared memory, objects, memory."""

from rankdrill.boundary.crossing import Boundary, Call, Interceptor, Proceed
from rankdrill.boundary.install import install

__all__ = ["Boundary", "Call", "Interceptor", "Proceed", "install"]
