"""The tasks that the rule-based responder can do, one per file."""
