"""Watchers observe a run: they receive records and deltas, and cannot change the run."""
