"""What pyproject.toml has no settled way to say: a module in C, left out where it cannot be built."""

from __future__ import annotations

from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("harness/rankdrill/native")

setup(
    ext_modules=[
        Extension(
            "rankdrill.native.hot",
            sources=sorted(map(str, NATIVE.glob("*.c"))),
            depends=sorted(map(str, NATIVE.glob("*.h"))),
            extra_compile_args=["-std=c11"],
            optional=True,  # without a compiler the same is done in Python
        )
    ]
)
