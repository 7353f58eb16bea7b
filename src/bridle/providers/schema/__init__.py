"""Compiles one JSON Schema for each wire's dialect, lists what is lost, and restores arguments.

Does not belong here: knowledge of any family; the dialects are rows of dialects.toml.
"""
