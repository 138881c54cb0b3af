"""``python -m sibe``."""

from sibe.cli.main import main

if __name__ == "__main__":  # not where a process is spawned
    main()
