"""Finds fork points in a session, and compares two sessions.

Does not belong here: the pending calls of a fork (calls.transitions).
"""
