"""Where the traceback of a failure ends: in the code under test, or in what it called, as on no rank."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

FAIL = {
    "open": 'open("/nowhere/at/all")',
    "write": 'open("/nowhere/at/all", "w")',
    "rename": 'os.rename("/nowhere/at/all", "b")',
    "remove": 'os.remove("/nowhere/at/all")',
    "save": 'torch.save(torch.ones(1), "/nowhere/at/all")',
    "load": 'torch.load("/nowhere/at/all")',
    "pickle": "__import__('pickle').dumps(lambda: 1)",
    "store": "dist.distributed_c10d._get_default_store().wait(['never'], __import__('datetime').timedelta(0, 1))",
    "shared memory": "__import__('multiprocessing.shared_memory').shared_memory.SharedMemory('nobody')",
    "collective": "dist.all_gather([torch.ones(1)], torch.ones(1))",
    "exit": "sys.exit(3)",
}


def test_no_frame_of_ours_is_shown(run: Run) -> None:
    tests = (
        f"@pytest.mark.ranks(2)\ndef test_{number}():\n    {line}\n\n" for number, line in enumerate(FAIL.values())
    )
    ran = run("".join(tests))
    ran.result.assert_outcomes(failed=len(FAIL))
    assert "rankdrill/boundary" not in ran.screen
    assert "missing key: ranks 0, 1 wait for the key 'never', which nobody has set, at test_it.py:" in ran.screen
    for name, line in FAIL.items():
        shown = f">       {line}" in ran.screen or f">   {line}" in ran.screen
        assert shown or name == "store", "of which the finding says more"


def test_what_stands_below_the_user_and_is_not_ours_is_shown(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(library="def opens(path):\n    return open(path)  # here\n")
    ran = run("import library\n\n@pytest.mark.ranks(2)\ndef test_it():\n    library.opens('/nowhere/at/all')\n")
    assert "library.py:2: FileNotFoundError" in ran.screen
