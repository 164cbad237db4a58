"""What the controller asks a rank's pytest session to do: plain data, one command to a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from rankdrill.worlds.plain import Plain

__all__ = [
    "Collect",
    "Command",
    "Example",
    "Finish",
    "Foundation",
    "GoOn",
    "Lent",
    "Measured",
    "NoMoreExamples",
    "Open",
    "SessionSetup",
    "TestPlace",
    "When",
]

When: TypeAlias = Literal["setup", "call", "teardown"]


@dataclass(frozen=True, slots=True)
class Measured:
    """What of coverage a rank needs: the settings as the controller has them, and a `directory` for its data.

    `by_test` says that lines are to be put down to the tests that ran them.
    """

    directory: str
    started_in: str
    config_file: str | None
    source: tuple[str, ...] | None
    source_pkgs: tuple[str, ...]
    branch: bool
    by_test: bool


@dataclass(frozen=True, slots=True)
class Lent:
    """The controller's terminal, lent to one rank: paths of what it reads from and writes to."""

    rank: int
    stdin: str
    stdout: str


@dataclass(frozen=True, slots=True)
class Foundation:
    """Of a session what does not depend on the tests: plugins of pytest's that are `blocked`, by name, and the
    installed `plugins`, by name and module."""

    blocked: tuple[str, ...]
    plugins: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Worker(Plain):
    """Which worker of pytest-xdist runs the test, and the name of the whole run."""

    worker_id: str
    testrun_uid: str


@dataclass(frozen=True)
class SessionSetup:
    """What a rank needs to make the same session as the controller.

    `ini` and `aliases` are the ini options of all plugins of the controller, `markers` its markers' ini lines, `worker`
    what pytest-xdist's fixtures have to say there, None without it. With
    `live_log` what is logged is shown at once, with `post_mortem` a failure on the rank that the terminal is lent to
    opens a prompt.
    """

    options: dict[str, Any]
    args: tuple[str, ...]
    foundation: Foundation
    ini: dict[str, Any]
    aliases: dict[str, str]
    markers: tuple[str, ...]
    measured: Measured | None = None
    live_log: bool = False
    lent: Lent | None = None
    post_mortem: bool = False
    worker: Worker | None = None


@dataclass(frozen=True, slots=True)
class TestPlace(Plain):
    """Which test, where its ranks' shared `tmp_path` is, and its location: file, line from 0, name."""

    __test__ = False  # pytest would take it for a test class

    nodeid: str
    path: str
    tmp_path: str
    location: tuple[str, int | None, str]


@dataclass(frozen=True, slots=True)
class Collect(Plain):
    """Import a file and collect its tests: for as long as that takes."""

    path: str


@dataclass(frozen=True, slots=True)
class Open(Plain):
    """Begin a test and run these phases of it; `following` is the next test of this world.

    With `same_seed` all ranks draw the same random numbers. `attempt` counts from 1 where pytest-rerunfailures or its
    like count how often the test has begun, and is None without them.
    """

    place: TestPlace
    phases: tuple[When, ...]
    following: TestPlace | None
    same_seed: bool = False
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class GoOn(Plain):
    """Run further phases of the test that is open. With `examples` its body waits for examples."""

    phases: tuple[When, ...]
    following: TestPlace | None = None
    examples: bool = False


@dataclass(frozen=True, slots=True)
class Example(Plain):
    """Run the body of the open test with the values that Hypothesis drew. A `final` one is to be shown."""

    drawn: dict[str, Any]
    final: bool = False


@dataclass(frozen=True, slots=True)
class NoMoreExamples(Plain):
    """Hypothesis is done: let the call phase end."""


@dataclass(frozen=True, slots=True)
class Finish(Plain):
    """The controller's session is over: tear down what is still up."""


Command: TypeAlias = Collect | Open | GoOn | Example | NoMoreExamples | Finish
