"""What the fault handler prints, of this Python and of others, is read: threads, frames, and whose they are."""

from __future__ import annotations

import faulthandler
import inspect
from pathlib import Path

import pytest
import torch

from rankdrill.step import Site
from rankdrill.whose import Whose, whose_file
from rankdrill.worlds import dumps
from rankdrill.worlds.dumps import innermost_site, sections

TORCH = str(Path(torch.__file__).parent)
OURS = str(Path(dumps.__file__))
STDLIB = inspect.getfile(inspect)
THREADS = f"""
Thread 0x00007f0000000001 [loader] (most recent call first):
  File "{STDLIB}", line 3 in wait
  File "/app/data.py", line 9 in load
  ...

Current thread 0x00007f0000000002 (most recent call first):
  File "{TORCH}/functional.py", line 5 in einsum
  File "{STDLIB}", line 7 in call
  File "/app/train.py", line 12 in step
  File "/app/train.py", line ??? in lost
  File "/app/main.py", line 40 in <module>
  File "{OURS}", line 1 in run
  File "<string>", line 1 in <module>

Current thread's C stack trace (most recent call first):
  Binary file "/usr/lib/libc.so.6", at abort+0x26 [0x7f]

Extension modules: numpy, torch._C (total: 2)
"""


def test_threads_and_their_frames_but_rankdrills_own() -> None:
    (loader, loading), (current, stepping) = sections(THREADS)
    assert (loader, current) == (False, True)
    assert loading == [Site(STDLIB, 3, "wait"), Site("/app/data.py", 9, "load")]
    assert [(site.line, site.function) for site in stepping] == [
        (5, "einsum"),
        (7, "call"),
        (12, "step"),
        (40, "<module>"),
    ]


def test_the_users_line_on_the_current_thread_is_the_one() -> None:
    assert innermost_site(THREADS) == Site("/app/train.py", 12, "step")


def test_a_librarys_line_is_better_than_none() -> None:
    dump = f'Current thread 0x01 (most recent call first):\n  File "{STDLIB}", line 3 in wait\n'
    assert innermost_site(dump) == Site(STDLIB, 3, "wait")


@pytest.mark.parametrize(
    "dump", ["", "Thread 0x01 (most recent call first):\n  <no Python frame>\n", "Current thread 0x01 (most"]
)
def test_where_no_line_is_known(dump: str) -> None:
    assert innermost_site(dump) is None
    assert innermost_site(dump, current=False) is None


def test_without_a_current_thread_the_main_one_stands_in_only_where_that_is_asked_for() -> None:
    dump = THREADS.replace("Current thread 0x", "Thread 0x")
    assert innermost_site(dump) is None
    assert innermost_site(dump, current=False) == Site("/app/train.py", 12, "step")


def test_names_that_are_not_ascii_are_as_they_were(tmp_path: Path) -> None:
    names: dict[str, object] = {"faulthandler": faulthandler}
    file = str(tmp_path / "größe_\u4e2d_\U0001f600.py")
    exec(compile("def gehört(out):\n    faulthandler.dump_traceback(out)\n", file, "exec"), names)
    with open(tmp_path / "dump", "w+b") as out:
        names["gehört"](out)  # type: ignore[operator]
        out.seek(0)
        dump = out.read().decode()
    assert dump.isascii()
    assert innermost_site(dump) == Site(file, 2, "gehört")


@pytest.mark.parametrize(
    ("file", "whose"),
    [
        (__file__, Whose.USER),
        ("<stdin>", Whose.USER),
        (OURS, Whose.OURS),
        (f"{TORCH}/nn/functional.py", Whose.TORCH),
        (f"{TORCH}_geometric/nn.py", Whose.LIBRARY),
        (STDLIB, Whose.LIBRARY),
        ("<frozen importlib._bootstrap>", Whose.LIBRARY),
    ],
)
def test_whose_a_file_is(file: str, whose: Whose) -> None:
    assert whose_file(file) is whose
