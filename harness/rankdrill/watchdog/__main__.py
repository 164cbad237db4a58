"""``python -m rankdrill.watchdog DIRECTORY LOCK``: started by a recorded rank, never by hand."""

from __future__ import annotations

import sys

from rankdrill.watchdog.process import main

if __name__ == "__main__":
    main(sys.argv[1:])
