"""The tasks that the rule-based responder can do, one per file.

A skill reads the facts of a conversation and returns a move, or None if the task is not its own. It
finds tools by their parameters and descriptions, not by fixed names, so it also works with unknown
tools. It reports a tool error and never retries, because retries could loop forever.
"""
