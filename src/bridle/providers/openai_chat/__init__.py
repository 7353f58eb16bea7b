"""The OpenAI Chat Completions wire, in both directions; many other servers speak it. `codec.py` is the entry."""
