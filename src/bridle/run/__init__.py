"""Drives sessions: carries out what core decides, awaits, stamps time and writes the log.

Does not belong here: any decision about what happens next (core).
"""
