"""Mistakes made on purpose, one at a time, in what judges, diagnoses and strikes: how many do the tests notice?

    python benchmarks/mutants.py [--only 'rankdrill.faults.*'] [--workers 1] [--again] [--report]

mutmut makes the mistakes; `[tool.mutmut]` in pyproject.toml says where, and which tests are asked. Exits with 1 where
fewer than `LEAST` of them are noticed. `--only` takes the modules of a pattern, and can be repeated. As many mutants as
`--workers` says are tried at once. `--again` keeps what was found last time: it goes on where that run was interrupted,
or asks the tests as they are now about what nobody noticed then. `--report` runs nothing.
"""

from __future__ import annotations

import argparse
import sys
from fnmatch import fnmatch
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.mutating.found import Mutant, read_mutants
from benchmarks.mutating.report import print_report, read_reasons
from benchmarks.mutating.running import lay_out, learn, run

LEAST = 0.90


def main() -> int:
    options = _options()
    if not options.report:
        lay_out(fresh=not options.again)
        print("finding out which tests reach what", flush=True)
        learn()
        left = [each for each in read_mutants() if _wanted(each, options.only) and not each.noticed]
        names = [each.name for each in left if not each.tried] or [each.name for each in left]
        print(f"trying {len(names)} mutants", flush=True)
        if names:
            run(names, options.workers)
    found = [each for each in read_mutants() if _wanted(each, options.only)]
    return 0 if print_report(found, read_reasons()) >= LEAST else 1


def _wanted(mutant: Mutant, patterns: list[str]) -> bool:
    return not patterns or any(fnmatch(mutant.module, pattern) for pattern in patterns)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", action="append", default=[], metavar="PATTERN", help="modules, as in 'rankdrill.faults.*'"
    )
    # One, unless told otherwise: tests of worlds start ranks of their own.
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="mutants tried at once (default: %(default)s)"
    )
    parser.add_argument(
        "--again", action="store_true", help="keep the last run; go on with it, or ask again about what was not noticed"
    )
    parser.add_argument("--report", action="store_true", help="run nothing")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
