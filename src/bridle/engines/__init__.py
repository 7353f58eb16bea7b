"""Engines run the loop of run/ on more than one machine: they retry, time, place and wake; the store stays the truth.

An engine performs a run in parts (`parts.py`) and carries references to the log only. It has no loop and no state of
its own beside that.
"""
