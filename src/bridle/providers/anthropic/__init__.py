"""The Anthropic Messages wire, in both directions. `codec.py` is the entry."""
