"""Where a question is asked: a directory of the caller's, and where a gather writes that is not told where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rankdrill.conformance.leftovers import files_left
from rankdrill.faults.content import LEFT_OVER
from rankdrill.step import Kind
from rankdrill.worlds import Outcome

__all__ = ["Directories"]

_WRITTEN = ("write", "rename", "replace", "link")
_TEMPORARY = "the directory for temporary files"
_NAME, _THEIRS = "theirs.txt", "somebody else's file"


@dataclass(frozen=True)
class Directories:
    """Three directories: the caller's, the one to work in, and the one for temporary files."""

    callers: Path
    work: Path
    scratch: Path

    @classmethod
    def made(cls, below: Path) -> Directories:
        """New ones, with a file of somebody else's in each."""
        directories = cls(below / "the caller's", below / "work", below / "scratch")
        for directory in (directories.callers, directories.work, directories.scratch):
            directory.mkdir(parents=True)
            (directory / _NAME).write_text(_THEIRS)
        return directories

    def beside(self) -> Directories:
        """The same place with another directory of the caller's."""
        directory = self.callers.with_name("the other caller's")
        directory.mkdir()
        (directory / _NAME).write_text(_THEIRS)
        return Directories(directory, self.work, self.scratch)

    def planted(self, its: Directories, outcome: Outcome) -> list[str]:
        """Put here what ranks have written in others, `its`, as if they had crashed: the names."""
        written = {
            record.step.target
            for rank in outcome.ranks
            for record in rank.ledger
            if record.step.kind is Kind.FILE and record.step.op in _WRITTEN
        }
        below = its.callers.parent
        names = sorted(name[len(f"{below}/") :] for name in written if name.startswith(f"{below}/"))
        for name in names:
            path = self.callers.parent / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_dir():
                path.write_bytes(LEFT_OVER)
        return names

    def theirs_gone(self) -> str:
        """What has become of others' files, if not what they were."""
        if not self.callers.is_dir():
            return "the caller's directory is gone"
        for where, directory in self._named():
            theirs = directory / _NAME
            if not theirs.is_file() or theirs.read_text() != _THEIRS:
                return f"a file of somebody else's, which was in {where}, is gone or has changed"
        return ""

    def left(self, keeps: tuple[str, ...], ranks: int) -> str:
        """What is there and was not. Of temporary directories each of `ranks` may have one that it made for good."""
        found = {where: _left_in(directory, keeps) for where, directory in self._named()}
        if len([name for name in found[_TEMPORARY] if name.endswith("/")]) <= ranks:
            found[_TEMPORARY] = [name for name in found[_TEMPORARY] if not name.endswith("/")]
        return "\n".join(f"left in {where}: {', '.join(names)}" for where, names in found.items() if names)

    def _named(self) -> tuple[tuple[str, Path], ...]:
        return (
            ("the directory", self.callers),
            ("the working directory", self.work),
            (_TEMPORARY, self.scratch),
        )


def _left_in(directory: Path, keeps: tuple[str, ...]) -> list[str]:
    return list(files_left(str(directory), (_NAME, *keeps), empty=True))
