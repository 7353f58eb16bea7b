"""Decides what to do next: pure functions over values, without I/O."""
