"""Finds code that changes the start of a prompt between runs: by reading the source, and by loading it again."""
