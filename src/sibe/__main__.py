"""``python -m sibe``."""

from sibe.cli import main

main()
