"""Chooses what the simulated model says: scripts, skills, recordings. It reads only a `Request`.

Does not belong here: wires, signatures, costs.
"""
