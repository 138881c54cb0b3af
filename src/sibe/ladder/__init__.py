"""`sibe ladder`: one part of the agent at a time is replaced by something perfect.

The rungs, from the most replaced to nothing replaced: ``state``, ``error``, ``supervised``,
``alone``, ``agent``. The lowest one that fails names the part that fails.
"""
