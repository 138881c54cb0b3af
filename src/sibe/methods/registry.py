"""Where plug-ins written for sibe 0.1 import ``Entry`` from; new ones use sibe.methods.entry."""

from sibe.methods.entry import Entry

__all__ = ["Entry"]
