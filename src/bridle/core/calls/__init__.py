"""Takes a tool call from the reply to its result: validation, permission, dispatch, receipts, compensation,
and which tools are offered.

Does not belong here: running tools (run.calls).
"""
