"""Tools made of Python code: signature, options, how a function is called, its results.

Does not belong here: types as schemas (tools.schema).
"""
