"""The Bedrock Converse wire, in both directions. `codec.py` is the entry."""
