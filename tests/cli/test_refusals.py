"""Mistakes in a command: exit code 2, one line that names the value and the remedy, no traceback."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from rankdrill.cli import main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["drill", "--path", "all_gater"], "unknown path 'all_gater': did you mean all_gather"),
        (["drill", "--path", "zzz"], "unknown path 'zzz': choose from NFSWorkspace, all_gather"),
        (["drill", "--path", "nosuchmodule:ADAPTER"], "No module named 'nosuchmodule'; give module:attribute"),
        (["drill", "--path", "os:sep"], "--path 'os:sep' is a str; give module:attribute"),
        (["drill", "--ranks", "0"], "a drilled world has 1 to 64 ranks, not 0"),
        (["drill", "--ranks", "2,four"], "'four' is no number; give world sizes such as 2,4"),
        (["drill", "--ranks", "1000000"], "not 1000000"),
        (["drill", "--fault", "kil"], "unknown fault 'kil': did you mean kill"),
        (["drill", "--fault", "rank 1 does what it likes"], "rank 1 does what it likes"),
        (["drill", "--payload", "smal"], "unknown payload 'smal': did you mean small"),
        (["drill", "--json", "/no/such/directory/x.json"], "there is no directory /no/such/directory; make it first"),
        (["drill", "--junit", "/"], "--junit /: is a directory; give a file"),
        (["drill", "--jobs", "0"], "0 is not in the range"),
        (["drill", "--deadline", "0"], "--deadline 0.0: give seconds above 0"),
        (["drill", "--timeout", "-1"], "--timeout -1.0: give seconds above 0"),
        (["dril"], "No such command 'dril'"),
    ],
)
def test_a_mistake_is_refused_in_one_line(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert "Traceback" not in result.output
    assert result.output.strip().count("\n") <= 3
