"""A test on ranks behaves as any test: fixtures, parameters, skips, capture, warnings, temporary directories."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.conftest import Session
from tests.plugin.conftest import Ran

Run = Callable[..., Ran]


def test_sizes_parametrize_beside_other_parameters(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize("word", ["a", "b"])
def test_it(rank, word, world_size):
    assert dist.get_world_size() == world_size == rank.world_size
    words = [None] * world_size
    dist.all_gather_object(words, word)
    assert words == [word] * world_size
""")
    ran.result.assert_outcomes(passed=6)
    assert "test_it[3ranks-b]" in ran.cases


def test_a_test_that_parametrizes_its_world_size_itself_goes_on_doing_so(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("degree, world_size", [(3, 1), (4, 2)])
def test_it(degree, world_size):
    assert dist.get_world_size() == world_size == degree - 2
""")
    assert {test: ran.outcome(test) for test in ran.cases} == {"test_it[3-1]": "passed", "test_it[4-2]": "passed"}


def test_what_is_nearer_to_a_test_than_the_marker_says_which_of_its_sizes_run(run: Run) -> None:
    ran = run("""
pytestmark = pytest.mark.ranks(1, 2)

def pytest_generate_tests(metafunc):
    if metafunc.function.__name__ == "test_by_hook":
        metafunc.parametrize("world_size", [2])

@pytest.mark.parametrize("world_size", [1])
def test_alone(world_size):
    assert dist.get_world_size() == world_size == 1

def test_by_hook(world_size):
    assert dist.get_world_size() == world_size == 2
""")
    assert {test: ran.outcome(test) for test in ran.cases} == {"test_alone[1]": "passed", "test_by_hook[2]": "passed"}


def test_several_sizes_need_not_be_named_by_the_test(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(1, 2)
def test_it(): ...

@pytest.mark.ranks(1, 2)
class TestClass:
    @pytest.mark.parametrize("word", ["a", "b"])
    def test_method(self, word): ...
""")
    ran.result.assert_outcomes(passed=6)


def test_one_size_adds_nothing_to_the_name_of_the_test(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(2)
def test_it(world_size):
    assert world_size == 2
""")
    assert set(ran.cases) == {"test_it"}
    assert ran.outcome("test_it") == "passed"


def test_the_marker_works_on_classes_and_modules_and_inner_options_win(run: Run) -> None:
    ran = run("""
pytestmark = pytest.mark.ranks(2, deadline=20)

def test_module(rank):
    assert rank.world_size == 2

@pytest.mark.ranks(3)
class TestClass:
    def test_method(self, rank):
        assert rank.world_size == 3
        self.kept = 1

    @pytest.mark.ranks(1)
    def test_inner(self, rank):
        assert rank.world_size == 1
        assert not hasattr(self, "kept")
""")
    ran.result.assert_outcomes(passed=3)


def test_fixtures_of_every_scope_live_on_the_ranks(run: Run) -> None:
    ran = run("""
log = []

@pytest.fixture(scope="session")
def session_wide():
    log.append("session")
    yield dist.get_rank()

@pytest.fixture(scope="module", params=["p", "q"])
def module_wide(request, session_wide):
    log.append(request.param)
    yield request.param
    log.append("-" + request.param)

@pytest.fixture
def each(module_wide):
    log.append("each")
    yield
    log.append("-each")

class TestScopes:
    @pytest.fixture(scope="class", autouse=True)
    def class_wide(self):
        log.append("class")
        yield
        log.append("-class")

    @pytest.mark.ranks(2)
    def test_one(self, each, session_wide, rank):
        assert session_wide == rank.index

    @pytest.mark.ranks(2)
    def test_two(self, each):
        pass

@pytest.mark.ranks(2)
def test_log():
    assert log.count("session") == 1
    assert log.count("p") == log.count("-p") == 1, log
    assert log.count("each") == log.count("-each") == 4, log
    assert log.count("class") == log.count("-class") >= 1, log
""")
    ran.result.assert_outcomes(passed=5)


def test_fixtures_are_not_set_up_in_the_controller(run: Run) -> None:
    ran = run("""
controller = os.getpid()

@pytest.fixture(autouse=True)
def here(request):
    assert os.environ["RANK"] in "01", "set up outside a rank"

@pytest.mark.ranks(2)
def test_it(rank): ...
""")
    ran.result.assert_outcomes(passed=1)


def test_session_fixtures_are_torn_down_at_the_end(run: Run, pytester: pytest.Pytester) -> None:
    run("""
from pathlib import Path

@pytest.fixture(scope="session")
def resource(rank):
    yield
    Path(f"torn-down-{rank.index}").touch()

@pytest.mark.ranks(2)
def test_it(resource): ...
""")
    assert (pytester.path / "torn-down-0").exists()
    assert (pytester.path / "torn-down-1").exists()


def test_an_error_in_a_fixture_of_one_rank_is_an_error_at_setup(run: Run) -> None:
    ran = run("""
@pytest.fixture
def broken(rank):
    assert rank.index != 1, "no data here"

@pytest.mark.ranks(2)
def test_it(broken):
    dist.barrier()  # is never entered: rank 0 would wait in it
""")
    assert ran.outcome("test_it") == "error"
    assert "rank 1 failed: AssertionError: no data here" in ran.failure("test_it")


def test_an_error_at_teardown_is_reported_once(run: Run) -> None:
    ran = run("""
@pytest.fixture
def untidy(rank):
    yield
    assert rank.index != 0, "left something"

@pytest.mark.ranks(2)
def test_it(untidy): ...

@pytest.mark.ranks(2)
def test_after(rank): ...
""")
    ran.result.assert_outcomes(passed=2, errors=1)
    assert "left something" in ran.failure("test_it")


def test_tmp_path_is_shared_and_rank_tmp_path_is_not(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(3)
def test_it(rank, tmp_path, rank_tmp_path):
    assert list(rank_tmp_path.iterdir()) == []
    (tmp_path / f"from-{rank.index}").touch()
    rank.barrier()
    assert len(list(tmp_path.glob("from-*"))) == 3

@pytest.mark.ranks(3)
def test_another(tmp_path):
    assert not list(tmp_path.glob("from-*"))
""")
    ran.result.assert_outcomes(passed=2)


OF_SOMEBODY_ELSE = """
@pytest.fixture
def copied(tmp_path):
    os.mkdir(tmp_path / "data")
    return tmp_path / "data"

"""


def test_ranks_that_make_the_same_directory_are_told_of_their_own(run: Run) -> None:
    ran = run(
        OF_SOMEBODY_ELSE
        + """
@pytest.mark.ranks(2)
def test_fixture(copied): ...

@pytest.mark.ranks(2)
def test_relative(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        os.symlink("a", "here")
    except FileExistsError as error:
        raise RuntimeError("cannot begin") from error

@pytest.mark.ranks(2)
def test_elsewhere(): os.mkdir("/tmp")

@pytest.mark.ranks(1)
def test_alone(copied): os.mkdir(copied)

@pytest.mark.ranks(2)
class TestMended:
    @pytest.fixture
    def tmp_path(self, rank_tmp_path):
        return rank_tmp_path

    def test_it(self, copied):
        assert copied.parent.name == f"rank-{dist.get_rank()}"
"""
    )
    ran.result.assert_outcomes(errors=1, failed=3, passed=1)
    shown = re.split(r"^_+ (?:ERROR at setup of )?(test_\w+) _+$", ran.screen, flags=re.MULTILINE)[1:]
    told = {name: text for name, text in zip(shown[::2], shown[1::2], strict=True) if "rank_tmp_path" in text}
    assert told.keys() == {"test_fixture", "test_relative"}
    for text in told.values():
        assert "tmp_path is one directory for all ranks; if each is meant to have its own:" in text
        assert "  def tmp_path(rank_tmp_path): return rank_tmp_path" in text


def test_monkeypatch_capsys_and_raises(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(2)
def test_it(monkeypatch, capsys, rank):
    monkeypatch.setenv("WORD", str(rank.index))
    print("said", os.environ["WORD"])
    assert capsys.readouterr().out == f"said {rank.index}\\n"
    with pytest.raises(ZeroDivisionError):
        1 / 0

@pytest.mark.ranks(2)
def test_undone():
    assert "WORD" not in os.environ
""")
    ran.result.assert_outcomes(passed=2)


def test_skip_and_xfail_are_judged_on_all_ranks_together(run: Run) -> None:
    ran = run("""
@pytest.mark.skip(reason="not today")
@pytest.mark.ranks(2)
def test_marked(): assert False

@pytest.mark.ranks(2)
def test_all_skip(): pytest.skip("nothing to do")

@pytest.mark.xfail
@pytest.mark.ranks(2)
def test_one_rank_fails(rank): assert rank.index == 0

@pytest.mark.xfail(raises=ZeroDivisionError)
@pytest.mark.ranks(2)
def test_raises_that(): 1 / 0

@pytest.mark.xfail(raises=ZeroDivisionError)
@pytest.mark.ranks(2)
def test_raises_another(): [][0]

@pytest.mark.ranks(2)
def test_all_xfail(): pytest.xfail("known")

@pytest.mark.xfail(strict=True)
@pytest.mark.ranks(2)
def test_passes_unexpectedly(): ...
""")
    ran.result.assert_outcomes(skipped=2, xfailed=3, failed=2)
    assert ran.outcome("test_raises_another") == ran.outcome("test_passes_unexpectedly") == "failed"


def test_output_of_every_rank_is_kept_and_the_culprits_comes_first(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(3)
def test_it(rank):
    print("hello from", rank.index)
    print("oh no", file=sys.stderr)
    assert rank.index != 2
""")
    screen = ran.screen
    assert screen.index("hello from 2") < screen.index("hello from 0") < screen.index("hello from 1")
    assert "Captured stdout of rank 2 call" in screen
    assert "Captured stderr of rank 0 call" in screen


def test_dash_s_streams_with_the_rank_before_each_line(run: Run) -> None:
    ran = run(
        """
@pytest.mark.ranks(2)
def test_it(rank):
    print("hello")
    os.write(1, b"no newline")
""",
        "-s",
    )
    for rank in (0, 1):
        assert f"[rank {rank}] hello" in ran.screen
        assert f"[rank {rank}] no newline" in ran.screen


def test_warnings_reach_the_summary_once_and_filters_hold_on_ranks(run: Run) -> None:
    ran = run("""
import warnings

@pytest.mark.ranks(3)
def test_warns(): warnings.warn("a word to the wise")

@pytest.mark.filterwarnings("error")
@pytest.mark.ranks(2)
def test_strict(): warnings.warn("fatal here")
""")
    ran.result.assert_outcomes(passed=1, failed=1, warnings=1)
    assert "UserWarning: a word to the wise" in ran.screen
    assert "UserWarning: fatal here" in ran.failure("test_strict")


def test_equal_failures_are_shown_once_with_the_ranks_listed(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(4)
def test_it(rank):
    found = [1, rank.index]
    assert rank.index == 3 or found == []
""")
    text = ran.failure("test_it")
    assert "ranks 0, 1, 2 failed: " in text
    assert text.count(">       assert rank.index == 3") == 1, "one traceback for all three"
    assert all(f"[1, {rank}] == []" in text for rank in range(3)), "and each rank's own values"


def test_junit_has_one_case_with_a_property_per_rank(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(2)
def test_it(rank, record_property):
    record_property("loss", rank.index / 2)
    assert rank.index == 0
""")
    (case,) = ran.cases.values()
    properties = {p.get("name"): p.get("value") for p in case.iter("property")}
    assert properties["rank 0"] == "passed"
    assert properties["rank 1"] == "failed"
    assert properties["rank 0 loss"] == "0.0"


def test_conftest_fixtures_and_hooks_apply_on_ranks(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
import os
import pytest

@pytest.fixture
def from_conftest(rank):
    return rank.index * 10

def pytest_runtest_call(item):
    os.environ["HOOK_RAN"] = "yes"
""")
    ran = run("""
@pytest.mark.ranks(2)
def test_it(from_conftest, rank):
    assert from_conftest == rank.index * 10
    assert os.environ["HOOK_RAN"] == "yes"
""")
    ran.result.assert_outcomes(passed=1)


def test_plain_tests_are_untouched_and_torch_is_not_imported_for_them(
    pytester: pytest.Pytester, session: Session
) -> None:
    pytester.makepyfile("""
import sys

def test_plain(tmp_path):
    assert "torch" not in sys.modules
    assert "rankdrill.worlds" not in sys.modules
""")
    session("-p", "no:cacheprovider", fresh="what it imports is counted").assert_outcomes(passed=1)


def test_the_controller_imports_no_torch_for_tests_on_ranks_and_has_the_template_do_it_at_once(
    pytester: pytest.Pytester, session: Session
) -> None:
    pytester.makepyfile("""
import sys
import pytest
from rankdrill.worlds.processes.client import TemplateClient

STARTED = TemplateClient._shared is not None

@pytest.mark.ranks(2)
def test_ranks(rank):
    rank.barrier()

def test_plain():
    assert STARTED
    assert "torch" not in sys.modules
    assert "hypothesis" not in sys.modules
""")
    session("-p", "no:cacheprovider", fresh="what it imports is counted").assert_outcomes(passed=2)


def test_no_template_is_started_for_a_file_beside_that_was_not_asked_for(
    pytester: pytest.Pytester, session: Session
) -> None:
    pytester.makepyfile(
        test_ranked="import pytest\n\n@pytest.mark.ranks(2)\ndef test_ranks(rank): ...\n",
        test_plain="""
from rankdrill.worlds.processes.client import TemplateClient

def test_plain():
    assert TemplateClient._shared is None
""",
    )
    session("-p", "no:cacheprovider", "test_plain.py").assert_outcomes(passed=1)


def test_plain_and_ranked_tests_mix_in_any_order(run: Run) -> None:
    ran = run("""
@pytest.fixture(scope="module")
def both(): return os.getpid()

def test_plain(both): ...

@pytest.mark.ranks(2)
def test_a(both): ...

class TestMixed:
    def test_plain_method(self, both): ...
    @pytest.mark.ranks(2)
    def test_b(self, both): ...

def test_plain_last(both): ...
""")
    ran.result.assert_outcomes(passed=5)


def test_plain_tests_need_no_phases_of_their_own_and_still_see_hooks_marks_and_order(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest("""
import os
seen = []

def pytest_runtest_setup(item):
    seen.append(f"setup {item.name}")

def pytest_runtest_teardown(item):
    seen.append(f"teardown {item.name}")
""")
    ran = run("""
from conftest import seen

@pytest.mark.ranks(2)
def test_a(rank): ...

@pytest.mark.skipif("os.environ.get('RANK') is not None", reason="here on ranks alone")
@pytest.mark.ranks(2)
def test_b(rank): assert False

@pytest.mark.ranks(2)
def test_c(rank):
    # A skip by mark comes before the hooks of conftest files, as in any session; their teardown is called.
    assert seen == ["setup test_a", "teardown test_a", "teardown test_b", "setup test_c"], seen
""")
    assert ran.outcome("test_a") == ran.outcome("test_c") == "passed", ran.screen
    assert ran.outcome("test_b") == "skipped"


def test_durations_are_those_of_the_phases_on_the_ranks(run: Run) -> None:
    ran = run(
        """
@pytest.fixture
def slow(rank):
    time.sleep(0.3 * rank.index)

@pytest.mark.ranks(2)
def test_body(rank):
    time.sleep(0.2 * rank.index)

@pytest.mark.ranks(2)
def test_setup(slow): ...
""",
        "--durations=0",
        "-vv",
    )
    lines = [line.split() for line in ran.screen.splitlines() if "s call" in line or "s setup" in line]
    seconds = {(when, name.rpartition("::")[2]): float(time.rstrip("s")) for time, when, name in lines}
    assert seconds["call", "test_body"] >= 0.2
    assert seconds["setup", "test_setup"] >= 0.3
    assert seconds["call", "test_setup"] < 0.2
    assert seconds["setup", "test_body"] < 0.2


def test_a_conftest_file_hears_of_the_sessions_start_on_ranks(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
import pytest

def pytest_sessionstart(session):
    pytest.told_at_start = "yes"

def pytest_unconfigure(config):
    del pytest.told_at_start
""")
    ran = run(
        """
@pytest.mark.ranks(2)
def test_it():
    assert pytest.told_at_start == "yes"
""",
        "test_it.py::test_it",
    )
    ran.result.assert_outcomes(passed=1)
