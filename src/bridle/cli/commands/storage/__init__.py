"""Commands for the log as a file: verify, prune and copy it."""
