"""Several world sizes on methods of `unittest.TestCase`: each size is a test of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]


def test_each_size_is_a_test_with_an_outcome_of_its_own(run: Run) -> None:
    ran = run(
        """
import unittest

class TestSizes(unittest.TestCase):
    @pytest.mark.ranks(1, 2, 3)
    def test_sum(self):
        total = torch.ones(1)
        dist.all_reduce(total)
        self.assertEqual(total.item(), dist.get_world_size())
        self.assertNotEqual(dist.get_world_size(), 2 + dist.get_rank(), "planted")

    @pytest.mark.ranks(2)
    def test_one_size(self):
        self.assertEqual(self._testMethodName, "test_one_size")
""",
        "-v",
    )
    outcomes = {name: ran.outcome(name) for name in ran.cases}
    assert outcomes == {
        "test_sum[1ranks]": "passed",
        "test_sum[2ranks]": "failed",
        "test_sum[3ranks]": "failed",
        "test_one_size": "passed",
    }
    assert ran.failure("test_sum[2ranks]").splitlines()[0].startswith("rank 0 failed: AssertionError: 2 == 2 : planted")
    assert ran.failure("test_sum[3ranks]").splitlines()[0].startswith("rank 1 failed: AssertionError: 3 == 3 : planted")
    assert {case.get("classname") for case in ran.cases.values()} == {"test_it.TestSizes"}
    ran.result.stdout.fnmatch_lines(["test_it.py::TestSizes::test_sum?1ranks? PASSED*"])


BOTH_SIZES = """
import unittest

@pytest.mark.ranks(1, 2)
class TestSizes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = ["class"]

    def setUp(self):
        self.size = dist.get_world_size()
        self.shared.append(self._testMethodName)

    def tearDown(self):
        if self.size == 2 and dist.get_rank() == 1 and "tear" in self._testMethodName:
            raise OSError("planted")

    def test_a_set_up(self):
        self.assertEqual(self.shared, ["class", "test_a_set_up"])
        self.assertEqual(self.size, dist.get_world_size())

    def test_b_tear_down(self): ...

    def test_c_subtests(self):
        for part in range(3):
            with self.subTest(part=part):
                self.assertNotEqual((self.size, dist.get_rank(), part), (2, 0, 1))

    def test_d_skips(self):
        if self.size == 2:
            self.skipTest("two are too many")

    @unittest.skip("always")
    def test_e_is_skipped(self):
        raise AssertionError

    @unittest.expectedFailure
    def test_f_is_expected_to_fail(self):
        self.assertEqual(self.size, 2)
"""


def test_what_unittest_knows_holds_in_each_size(run: Run) -> None:
    ran = run(BOTH_SIZES)
    outcomes = {name: ran.outcome(name) for name in ran.cases}
    assert outcomes == {
        "test_a_set_up[1ranks]": "passed",
        "test_a_set_up[2ranks]": "passed",
        "test_b_tear_down[1ranks]": "passed",
        "test_b_tear_down[2ranks]": "failed",
        "test_c_subtests[1ranks]": "passed",
        "test_c_subtests[2ranks]": "failed",
        "test_d_skips[1ranks]": "passed",
        "test_d_skips[2ranks]": "skipped",
        "test_e_is_skipped[1ranks]": "skipped",
        "test_e_is_skipped[2ranks]": "skipped",
        "test_f_is_expected_to_fail[1ranks]": "skipped",  # as JUnit has an expected failure
        "test_f_is_expected_to_fail[2ranks]": "failed",
    }
    assert "rank 1 failed: OSError: planted" in ran.failure("test_b_tear_down[2ranks]")
    assert "Unexpected success" in ran.failure("test_f_is_expected_to_fail[2ranks]")


def test_sizes_that_a_hook_gives_too_late_are_refused(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.ranks(1, 2))
""")
    ran = run("""
import unittest

class TestSizes(unittest.TestCase):
    def test_it(self): ...
""")
    assert ran.result.ret == pytest.ExitCode.USAGE_ERROR
    ran.result.stderr.fnmatch_lines(["*TestSizes::test_it: several world sizes*write the sizes on the function*"])


def test_sizes_of_a_class_and_of_a_base_class_are_chosen_by_id_and_by_keyword(run: Run) -> None:
    source = """
import unittest

@pytest.mark.ranks(1, 2)
class TestBase(unittest.TestCase):
    def test_it(self):
        dist.barrier()

class TestDerived(TestBase):
    @pytest.mark.ranks(2, 3)
    def test_other(self):
        dist.barrier()
"""
    every = run(source, "-k", "Derived")
    assert set(every.cases) == {"test_it[1ranks]", "test_it[2ranks]", "test_other[2ranks]", "test_other[3ranks]"}
    every.result.assert_outcomes(passed=4, deselected=2)
    assert set(run(source, "-k", "2ranks and Derived").cases) == {"test_it[2ranks]", "test_other[2ranks]"}


def test_one_size_is_chosen_by_its_node_id_and_all_by_the_methods(run: Run) -> None:
    assert list(run(BOTH_SIZES, "test_it.py::TestSizes::test_d_skips[1ranks]").cases) == ["test_d_skips[1ranks]"]
    both = run(BOTH_SIZES, "test_it.py::TestSizes::test_d_skips")
    assert list(both.cases) == ["test_d_skips[1ranks]", "test_d_skips[2ranks]"]


def test_async_methods_and_given_examples_run_in_each_size(run: Run) -> None:
    ran = run("""
import unittest
from hypothesis import given, settings, strategies as st

class TestAsync(unittest.IsolatedAsyncioTestCase):
    @pytest.mark.ranks(1, 2)
    async def test_async(self):
        self.assertEqual(dist.get_world_size(), 2)

class TestGiven(unittest.TestCase):
    @pytest.mark.ranks(1, 2)
    @settings(max_examples=20, database=None)
    @given(st.integers(0, 100))
    def test_given(self, drawn):
        assert drawn < 50 or dist.get_world_size() == 1

@pytest.mark.ranks(1, 2)
class TestPlain:
    @settings(max_examples=5, database=None)
    @given(st.integers(0, 100))
    def test_given_in_plain(self, drawn): ...
""")
    ran.result.assert_outcomes(passed=4, failed=2)
    assert ran.failure("test_async[1ranks]").startswith("rank 0 failed: AssertionError: 1 != 2")
    failure = ran.failure("test_given[2ranks]")
    assert failure.startswith("ranks 0, 1 failed: ")
    assert "assert (50 < 50 or 2 == 1)" in failure
