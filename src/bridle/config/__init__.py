"""Settings and agents in files: reads TOML, the environment and importable references into checked values.

Every error names the file and the line. Nothing here prints, runs an agent or reads a session log.
"""
