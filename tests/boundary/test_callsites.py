"""Which line of the user's is told, and which public function was called there."""

from __future__ import annotations

import linecache
import subprocess
import sys
import threading
import timeit
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from rankdrill.boundary import callsites
from rankdrill.boundary.callsites import call_site
from rankdrill.boundary.public_names import how_telling
from rankdrill.step import Site
from tests.faults.here import Here, world_of_one

GENEROUS_S = 1e-3
PATIENCE_S = 10.0


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    with world_of_one(tmp_path) as rank:
        yield rank


def sites(here: Here) -> list[Site]:
    return [record.step.site for record in here.view if record.step.kind == "collective" and record.step.site]


def line(site: Site) -> str:
    return linecache.getline(site.file, site.line).strip()


def test_the_line_and_the_function_are_the_users(here: Here) -> None:
    def step() -> None:
        dist.all_reduce(torch.ones(1))  # here

    step()
    (site,) = sites(here)
    assert site.file == __file__
    assert site.function == "step"
    assert line(site).endswith("# here")
    assert site.via == "all_reduce"


def gather_objects() -> None:
    dist.all_gather_object([None], {"a": 1})


def functionally() -> None:
    assert dist.group.WORLD is not None
    functional.all_reduce(torch.ones(2), "sum", dist.group.WORLD).sum()


def backwards() -> None:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    model(torch.ones(1, 3)).sum().backward()


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    ("call", "via"),
    [
        (gather_objects, "all_gather_object"),
        (functionally, "all_reduce"),
        (backwards, "DDP bucket 0"),
        (lambda: dist.barrier(), "barrier"),
    ],
)
def test_the_public_function_is_told(here: Here, call: Callable[[], None], via: str) -> None:
    call()
    site = sites(here)[-1]
    assert site.via == via
    assert site.file == __file__


def test_turns_of_a_loop_are_one_site_and_two_lines_are_two(here: Here) -> None:
    for _ in range(3):
        dist.barrier()
    dist.barrier()
    found = sites(here)
    assert len(found) == 4
    assert len(set(found)) == 2


def test_a_helper_of_the_users_is_the_users(here: Here) -> None:
    def helper(tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor)

    helper(torch.ones(1))
    assert sites(here)[0].function == "helper"


class Reducing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(gradient)
        return gradient


@pytest.mark.parametrize("find", [callsites.call_site, callsites.plain_call_site], ids=["C", "Python"])
def test_who_begins_a_backward_pass_calls_what_that_calls(
    here: Here, find: Callable[..., Site | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Site | None] = []

    class Looking(Reducing):
        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            found.append(find(0))
            return gradient

    value = torch.ones(2, requires_grad=True)
    for function in (Looking, Reducing):
        apply: Any = function.apply
        loss = apply(value).sum()
        torch.autograd.backward(loss)  # begun
    (site,) = (each for each in found if each is not None)
    assert (site.function, site.caller is not None) == ("backward", True)
    reduced = sites(here)[-1]
    for each in (site, reduced):
        assert each.caller is not None
        assert line(each.caller).endswith("# begun")


def call(do: Callable[[], Any]) -> Any:
    return do()


def torchs_in_one_place(count: int) -> list[Callable[[Callable[[], Any]], Any]]:
    """Functions of torch's own, as it looks, whose code would be remembered in one and the same place."""
    file = torch.nn.modules.module.__file__
    by_place: dict[int, list[CodeType]] = defaultdict(list)
    for line_ in range(1, 100_000):
        code = call.__code__.replace(co_filename=file, co_firstlineno=line_)
        those = by_place[(id(code) >> 5) % 4096]
        those.append(code)
        if len(those) == count:
            return [FunctionType(each, {}) for each in those]
    pytest.fail("no codes lie so in memory; is the place of one worked out in another way now?")


def test_functions_that_are_remembered_in_one_place_do_not_drive_each_other_out_for_ever(here: Here) -> None:
    """Within a backward pass a walk begins anew when it has learnt of a function, and never came to its end."""
    first, second, third = torchs_in_one_place(3)
    found: list[Site | None] = []

    class Looking(Reducing):
        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            found.append(first(lambda: second(lambda: third(callsites.call_site))))
            return gradient

    apply: Any = Looking.apply
    apply(torch.ones(2, requires_grad=True)).sum().backward()
    (site,) = found
    assert site is not None
    assert site.file == __file__


def compiled(source: str, file: str) -> dict[str, Any]:
    names: dict[str, Any] = {"call_site": call_site}
    exec(compile(source, file, "exec"), names)
    return names


def installed(name: str) -> str:
    return str(Path(torch.__file__).parents[1] / name / "comm.py")


def test_a_library_is_passed_over_for_the_user() -> None:
    library = compiled("def reduce():\n    return call_site()\n", installed("somebodys"))
    site = library["reduce"]()
    assert site.file == __file__


def test_where_there_is_only_a_library_it_is_told() -> None:
    library = compiled(
        "def inner():\n    return call_site()\ndef outer(found):\n    found.append(inner())\n", installed("somebodys")
    )
    found: list[Site] = []
    thread = threading.Thread(target=library["outer"], args=(found,))
    thread.start()
    thread.join()
    assert (found[0].function, found[0].line) == ("inner", 2), "the frame that called"


def test_code_that_has_no_file_is_the_users() -> None:
    site = compiled("def body():\n    return call_site()\n", "<string>")["body"]()
    assert (site.file, site.line, site.function) == ("<string>", 2, "body")


def test_it_costs_microseconds() -> None:
    # A generous bound: measured, it is below 2 µs.
    assert min(timeit.repeat(call_site, number=200, repeat=5)) / 200 < GENEROUS_S


def test_threads_may_meet_a_function_of_torchs_first_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, over = threading.Event(), threading.Event()
    file = str(Path(torch.__file__).parent / "distributed" / "made_for_this.py")
    met = compiled("def met_first():\n    return call_site()\n", file)["met_first"]

    def slow(code: CodeType) -> int:
        if threading.current_thread() is first:
            begun.set()
            over.wait(PATIENCE_S)
        return how_telling(code)

    found: list[Site] = []
    first = threading.Thread(target=lambda: found.append(met()))
    monkeypatch.setattr(callsites, "how_telling", slow)
    first.start()
    assert begun.wait(PATIENCE_S)
    site = met()
    over.set()
    first.join()
    assert site.via == found[0].via == "met_first"


def test_a_path_is_told_from_the_current_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(Site(str(tmp_path / "train.py"), 3, "step")) == "train.py:3 in step"
    assert str(Site(f"{tmp_path}er/train.py", 3, "step")) == f"{tmp_path}er/train.py:3 in step"


def test_deep_stacks_are_bounded() -> None:
    library = compiled("def deep(n):\n    return call_site() if n == 0 else deep(n - 1)\n", installed("somebodys"))
    limit = sys.getrecursionlimit()
    assert library["deep"](min(limit // 2, 400)).function == "deep"


def test_the_command_that_ranks_are_forked_from_is_no_line_of_the_users() -> None:
    code = "from rankdrill.boundary.callsites import call_site; print(call_site(1))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n", done.stdout


def test_a_line_that_was_made_from_text_is_the_users() -> None:
    found: dict[str, Site] = {}
    exec("found['site'] = call_site(1)", {"found": found, "call_site": call_site})
    assert found["site"].file == "<string>"


def test_a_pool_calls_where_it_was_told_to(here: Here) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(dist.all_reduce, torch.ones(1)).result()  # submitted
        list(pool.map(dist.all_reduce, [torch.ones(1)]))  # mapped
        pool.submit(reduces_by_itself).result()
    assert [(site.file, line(site).rpartition("# ")[2]) for site in sites(here)] == [
        (__file__, "submitted"),
        (__file__, "mapped"),
        (__file__, "itself"),
    ]
    assert [site.function for site in sites(here)] == [
        "test_a_pool_calls_where_it_was_told_to",
        "test_a_pool_calls_where_it_was_told_to",
        "reduces_by_itself",
    ]


def reduces_by_itself() -> None:
    dist.all_reduce(torch.ones(1))  # itself


def test_what_fails_in_a_pool_leads_to_where_it_was_told_to(here: Here) -> None:
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(torch.load, "/no such file")  # submitted
        with pytest.raises(FileNotFoundError) as failed:
            future.result()
    assert raised_at(failed) == ["submitted", "future.result()"]
    assert all(entry.lineno for entry in traceback.extract_tb(failed.tb))


def raised_at(failed: pytest.ExceptionInfo[BaseException]) -> list[str]:
    """The lines of this file that it leads through, by their marks, the innermost first."""
    shown = traceback.extract_tb(failed.tb)
    own = [(entry.line or "").rpartition("# ")[2] for entry in shown if entry.filename == __file__]
    return own[::-1]


def test_of_what_a_framework_calls_the_line_that_called_the_framework_is_told_too() -> None:
    script = Site("train.py", 9, "main")
    fit = Site("trainer.py", 28, "fit", caller=Site("trainer.py", 12, "run", caller=script))
    step = Site("trainer.py", 37, "step", caller=fit)
    assert str(step) == "trainer.py:37 in step, called at trainer.py:28 in fit, called at train.py:9 in main"
    assert str(Site("trainer.py", 37, "step", caller=script)) == "trainer.py:37 in step, called at train.py:9 in main"
