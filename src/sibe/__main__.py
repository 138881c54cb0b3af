"""``sibe`` and ``python -m sibe``."""

import sys

from sibe.training.portable import restart_if_asked


def main() -> None:
    """Run the command line; Ctrl-C is one line from its first import on."""
    try:
        restart_if_asked(sys.argv[1:])
        from sibe.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(_stopped())
    run()


def _stopped() -> int:
    print("sibe: stopped", file=sys.stderr)
    return 130


if __name__ == "__main__":  # not where a process is spawned
    main()
