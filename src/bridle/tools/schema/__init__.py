"""Python types as JSON Schema with a strict loader, and values back to JSON.

Does not belong here: what providers accept (providers.schema).
"""
