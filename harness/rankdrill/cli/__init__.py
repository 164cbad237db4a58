"""The command line: one file per command."""

from rankdrill.cli.app import main

__all__ = ["main"]
