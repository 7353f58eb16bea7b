"""Code of the user that takes part in a run: the context it is given, and the instructions it writes.

Hooks and validators are called with the same `RunContext`.  Tools are in `run/calls`, retrieval in `run/memory`.
"""
