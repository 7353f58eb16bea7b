"""Commands that serve agents to other programs."""
