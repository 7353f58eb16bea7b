"""The Gemini wire, in both directions. `codec.py` is the entry."""
