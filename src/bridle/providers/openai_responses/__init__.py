"""The OpenAI Responses wire, in both directions. `codec.py` is the entry."""
