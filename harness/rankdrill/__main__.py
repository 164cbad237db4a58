"""``python -m rankdrill``."""

from rankdrill.cli import main

if __name__ == "__main__":
    main(prog_name="rankdrill")
