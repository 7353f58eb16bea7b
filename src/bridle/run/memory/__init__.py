"""Reads and writes notes, calls retrievers, and carries out the memory effects.

Does not belong here: when and how notes are shown (core.memory).
"""
