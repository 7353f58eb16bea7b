"""Text on a terminal: escaping, widths, tables."""
