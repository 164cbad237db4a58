"""``rankdrill replay``: what ranks did elsewhere, done again here, on gloo."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rankdrill.cli.choose import check_seconds, choose_output
from rankdrill.cli.terminal import terminal
from rankdrill.errors import UsageError
from rankdrill.outputs import write_whole

if TYPE_CHECKING:
    from rankdrill.replay import Score

__all__ = ["replay"]

MOST_BYTES = 256 << 20  # of a file that is read whole
_SCORE = "score"
_OURS = b'"format": "rankdrill'  # how what we write begins
_HEAD = 256
_GIVE = "give a file that rankdrill run --json wrote"
ANOTHER = 1
CANNOT_TELL = 3


@click.command()
@click.option("--as-test", "test_file", metavar="FILE", help="Write it as a pytest file, to keep and to change.")
@click.option("--deadline", type=float, default=60.0, show_default=True, metavar="S", help="End it after that.")
@click.option("--ranks", type=int, metavar="N", help="At most so many ranks; else what this machine can bear.")
@click.option("--prefix", metavar="TEXT", help="What the names of the dumps begin with, before the rank.")
@click.option("--run", "number", type=int, metavar="N", help="Of a directory with several recorded runs the N-th.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.pass_context
def replay(
    ctx: click.Context,
    test_file: str | None,
    deadline: float,
    ranks: int | None,
    prefix: str | None,
    number: int | None,
    paths: tuple[str, ...],
) -> None:
    """Do again here what the ranks of a job did, and see whether the same comes of it.

    PATH is what `rankdrill run --json` wrote; or the directory of `rankdrill.record`; or dumps of PyTorch's Flight
    Recorder, a directory or the files themselves; or the directory that torch.distributed.debug's server writes to, or
    http://HOST:PORT, where it serves. Each rank makes the calls that it made there, on gloo and with
    tensors of the same types and sizes, as far as they are known, and ends as it ended there. Memory that is touched
    between calls, locks and the values of messages are not part of it.

    A job with more ranks than that is cut down to those that the verdict needs, a culprit and a few of its victims; who
    is who then is said, here and in the test.

    \b
    Examples:
      rankdrill run -n 4 --json run.json train.py
      rankdrill replay run.json
      rankdrill replay --as-test test_hang.py run.json
      rankdrill replay --as-test test_hang.py recorded/
      rankdrill replay --as-test test_hang.py dumps/
      rankdrill replay --as-test test_hang.py http://127.0.0.1:25999

    \b
    Exit codes: 0 the same came of it, 1 something else did, 2 a mistake in the command, 3 it cannot be told, since
    what was found is nothing that calls alone can bring about, or nothing was found, 130 interrupted.
    """
    path = choose_output("--as-test", test_file)
    check_seconds("--deadline", deadline)
    from rankdrill.explain.told import harmless
    from rankdrill.replay import bearable, beyond, play, pytest_file
    from rankdrill.worlds import check_world

    if ranks is not None:
        check_world(ranks)
    score = _score(paths, prefix, ranks or bearable(), number)
    screen = terminal()
    if path is not None:
        try:
            write_whole(path, pytest_file(score))
        except OSError as error:
            raise UsageError(f"--as-test {path}: {error.strerror}; give another file") from error
        screen.print(f"written: {test_file}", markup=False, soft_wrap=True)
    for line in (*score.cut, *(f"assumed: {each}" for each in score.assumed)):
        screen.print(harmless(line), markup=False, soft_wrap=True, style="dim")
    if not any(part.calls for part in score.parts):
        screen.print("no rank has made a call that could be played", markup=False)
        if not score.culprits:
            ctx.exit(CANNOT_TELL)
    played = play(score, deadline=deadline, file=path.absolute() if path is not None else None)
    same = played.as_told(score)
    screen.print(f"\n{played.outcome.summary()}", markup=False, soft_wrap=True)
    screen.print(f"\nthere: {score.there}", markup=False, soft_wrap=True)
    screen.print(f"here:  {played.verdict}", markup=False, soft_wrap=True, style="bold green" if same else "bold red")
    if not same and (why := beyond(score)):
        screen.print(f"cannot be told: {why}", markup=False, soft_wrap=True)
        ctx.exit(CANNOT_TELL)
    ctx.exit(0 if same else ANOTHER)


def _score(places: tuple[str, ...], prefix: str | None, most: int, number: int | None) -> Score:
    from rankdrill.explain.debug_server import is_address, read_served
    from rankdrill.explain.recording import is_recording
    from rankdrill.replay import fitted, score_of_dumps, score_of_recording, score_of_served

    paths = tuple(map(Path, places))
    for place, path in zip(places, paths, strict=True):
        if not path.exists() and not (len(places) == 1 and is_address(place)):
            raise UsageError(f"{path}: No such file or directory; {_GIVE}, or a directory")
    if len(paths) == 1 and is_recording(paths[0]):
        return score_of_recording(paths[0], most, number)
    if number is not None:
        raise UsageError(f"--run {number}: give the one directory that rankdrill.record writes to")
    if (served := read_served(places)) is not None:
        return score_of_served(served, most)
    if len(paths) > 1 or paths[0].is_dir() or _is_dump(paths[0]):
        return score_of_dumps(paths, prefix, most)
    return fitted(_written(paths[0]), most)


def _is_dump(path: Path) -> bool:
    from rankdrill.explain.flight.sources import looks_like_dump

    with suppress(OSError), path.open("rb") as file:
        return _OURS not in file.read(_HEAD) and looks_like_dump(path)
    return False


def _written(file: Path) -> Score:
    from rankdrill.replay import score_from_json

    try:
        if file.stat().st_size > MOST_BYTES:
            raise UsageError(f"{file} has more than {MOST_BYTES >> 20} MiB: it is not what rankdrill run --json wrote")
        said: Any = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; {_GIVE}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: {error}; {_GIVE}") from error
    if isinstance(said, dict) and _SCORE in said:
        said = said[_SCORE]
    try:
        return score_from_json(json.dumps(said))
    except UsageError as error:
        raise UsageError(f"{file}: {error}; {_GIVE}") from error
