"""Rules of Claude models that both of their wires report: the Messages API and Converse.

Does not belong here: anything that one of the wires alone has.
"""
