"""Pixels out, actions in: tasks, backgrounds, and the factory that joins them."""
