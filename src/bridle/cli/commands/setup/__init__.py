"""Commands about the installation and the project rather than about a session: settings, checks, models, files."""
