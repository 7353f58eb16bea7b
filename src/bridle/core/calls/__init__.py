"""Takes a tool call from the reply to its result, and selects the tools to offer.

Covers validation, permission, dispatch, receipts and compensation. Does not belong here: running tools
(run.calls).
"""
