"""Runs programs and leaves nothing behind; the tool made of a command line."""
