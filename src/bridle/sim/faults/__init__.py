"""Faults that can be planned, and the function that applies each of them to an encoded reply.

Does not belong here: rejections that a provider's rules produce.
"""
