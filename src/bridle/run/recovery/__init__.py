"""Reads damaged logs, keeps the circuit breakers of the process, and finds the parts that a provider
rejected.

Does not belong here: the policy (core.recovery).
"""
