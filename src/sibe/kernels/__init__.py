"""The few inner loops that are written in C, and their callers; every one has a plain twin."""
