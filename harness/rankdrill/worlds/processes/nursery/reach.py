"""Finding a nursery, or starting one: what a controller does that wants its template to be forked."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from rankdrill.errors import UsageError
from rankdrill.whose import OUR_FOLDER
from rankdrill.worlds.processes.nursery.key import environment_to_start_in
from rankdrill.worlds.processes.nursery.place import NurseryPlace

__all__ = ["KEEP_VARIABLE", "Nurseries", "keep_seconds"]

KEEP_VARIABLE = "RANKDRILL_KEEP_TEMPLATE"
LONGEST_S = 7 * 24 * 3600.0
LOCK_BOUND_S = 5.0
LAUNCH_BOUND_S = 30.0  # for an interpreter to start and fork itself
STATUS_BOUND_S = 5.0  # one that is only starting has not answered by then
MAX_STATUS = 1 << 12
# Its starter waits for the first process alone: the second is nobody's child, and lives on.
_BOOT = """
import os, sys
if os.fork():
    os._exit(0)
sys.path[:] = [entry for entry in sys.path if entry]
try:
    import rankdrill
except ImportError:
    sys.path.append({root!r})
from rankdrill.worlds.processes.nursery.server import main
main({listener}, {home!r}, {key!r}, {keep!r})
"""


def keep_seconds(environ: Mapping[str, str]) -> float | None:
    """For how long a nursery is to stay, as `KEEP_VARIABLE` says; None where there is to be none.

    Raises `UsageError` where it says anything but a number of seconds.
    """
    text = environ.get(KEEP_VARIABLE, "")
    try:
        seconds = float(text or 0)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_S:
        raise UsageError(f"{KEEP_VARIABLE}={text!r}: say for how many seconds, 600 for example, or leave it out")
    return seconds or None


class Nurseries:
    """The nurseries of one user, who has the private directory `home`."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def reach(self, key: str, keep: float, log: BinaryIO) -> socket.socket:
        """A connection to the nursery with `key`, which may only be starting; what that prints goes to `log`."""
        place = NurseryPlace(self._home, key)
        with place.locked(LOCK_BOUND_S) as mine:
            if not mine:
                raise TimeoutError("somebody else has been looking for a nursery all the time")
            try:
                return place.connect()
            except (FileNotFoundError, ConnectionRefusedError):
                self._sweep()
                # It listens before there is a process to answer: whoever comes meanwhile waits in the queue.
                with place.listen() as listener:
                    _launch(listener.fileno(), self._home, key, keep, log)
                    return place.connect()

    def _sweep(self) -> None:
        """Remove what killed nurseries have left; to be asked under the lock."""
        for place in NurseryPlace.all(self._home):
            try:
                place.connect().close()
            except ConnectionRefusedError:
                place.remove()
            except OSError:  # not ours, or too busy to say
                continue

    def status(self) -> list[dict[str, Any]]:
        """What each that answers says of itself: `pid`, `templates`, `up_s`, `keep_s`."""
        answers = []
        for connection in self._told(b"status"):
            if select.select([connection], [], [], STATUS_BOUND_S)[0]:
                with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
                    answers.append(json.loads(connection.recv(MAX_STATUS)))
        return answers

    def dismiss(self) -> None:
        """Have all of them end as soon as they have no template left."""
        for _ in self._told(b"end"):
            pass

    def _told(self, word: bytes) -> Iterator[socket.socket]:
        for place in NurseryPlace.all(self._home):
            with contextlib.suppress(OSError), place.connect() as connection:
                connection.send(word)
                yield connection


def _launch(listener: int, home: Path, key: str, keep: float, log: BinaryIO) -> None:
    root = str(OUR_FOLDER.parent)
    subprocess.run(
        [sys.executable, "-c", _BOOT.format(root=root, listener=listener, home=str(home), key=key, keep=keep)],
        pass_fds=[listener],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=environment_to_start_in(),
        start_new_session=True,
        timeout=LAUNCH_BOUND_S,
        check=True,
    )
