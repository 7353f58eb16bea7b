"""A conformance check for every port: codec, store, tool.

Does not belong here: tests of one implementation.
"""
