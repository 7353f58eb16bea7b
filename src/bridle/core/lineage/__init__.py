"""Finds where a session can be forked and compares two sessions.

Does not belong here: the open calls of a fork (calls.transitions).
"""
