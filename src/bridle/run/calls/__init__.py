"""Runs one tool call and what surrounds it: deadlines, probes, early starts, approvals and their proof,
stored results.

Does not belong here: whether a call may run (core.calls), what a tool is (tools).
"""
