"""The command that runs evaluations: eval."""
