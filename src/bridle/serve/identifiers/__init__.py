"""Ready-made functions for `identify`: bearer tokens of a file, JSON Web Tokens, the header of a trusted proxy.

Belongs here: what proves an identity. Does not belong here: what an identity may do (serve/identity.py).
"""
